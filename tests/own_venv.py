"""An environment of its own for what must not be installed beside art: an official client, say."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_with(name: str, *requirements: str) -> Path:
    """The Python of `.venv-NAME` in the project's folder, made with `requirements` if missing."""
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), *words, *requirements], check=True)
        (folder / ".installed").touch()
    return python


def files_of(name: str, requirement: str, ending: str, *options: str) -> Path:
    """Fetch a package without installing it; return a folder of its files that end so."""
    folder = ROOT / f".venv-{name}"
    if not (folder / ".fetched").exists():
        words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        words += [*options, "--dest", str(folder), requirement]
        subprocess.run([sys.executable, *words], check=True)
        for package in [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]:
            for path, data in _members(package, ending):
                (folder / Path(path).name).write_bytes(data)
            package.unlink()
        (folder / ".fetched").touch()
    return folder


def _members(package: Path, ending: str) -> list[tuple[str, bytes]]:
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            return [(n, wheel.read(n)) for n in wheel.namelist() if n.endswith(ending)]
    found = []
    with tarfile.open(package) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(ending) else None
            if file:
                found.append((member.name, file.read()))
    return found
