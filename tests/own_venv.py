"""An environment of its own for what must not be installed beside art: an official client, say."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python_with(name: str, *requirements: str) -> Path:
    """The Python of `.venv-NAME` in the project's folder, made with `requirements` if missing."""
    folder = ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    with _installing(folder, "\n".join(requirements)) as missing:
        if missing:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
            _install(python, requirements)
            # What is imported there is compiled once, also where Python is told to keep nothing.
            [packages] = folder.glob("lib/python*/site-packages")
            (packages / "kept.pth").write_text("import sys; sys.dont_write_bytecode = False\n")
    return python


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    """With uv, which needs a tenth of pip's CPU time. What it does not find, pip may: uv reads none
    of pip's settings. Neither compiles: most of it is never imported."""
    links = os.environ.get("PIP_FIND_LINKS")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    uv += ["--find-links", links] if links else []
    if subprocess.run([*uv, *requirements], capture_output=True).returncode == 0:
        return
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-compile"]
    words = ["--quiet", "--disable-pip-version-check", *requirements]
    subprocess.run([*pip, *words], check=True)


def node_modules_with(name: str, wanted: str, *built: str) -> Path:
    """The `node_modules` of `.venv-NAME`, with what the text of a package.json asks for if missing.

    Of the packages that are `built` the install scripts run.
    """
    folder = ROOT / f".venv-{name}"
    with _installing(folder, wanted) as missing:
        if missing:
            (folder / "package.json").write_text(wanted)
            # A lock file would record the addresses of this machine's registry.
            words = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund"]
            subprocess.run([*words, "--ignore-scripts", "--silent"], cwd=folder, check=True)
            if built:
                subprocess.run(["npm", "rebuild", "--silent", *built], cwd=folder, check=True)
    return folder / "node_modules"


@contextmanager
def _installing(folder: Path, wanted: str) -> Iterator[bool]:
    """Say whether `wanted` is still to be installed there; one process at a time asks."""
    folder.mkdir(exist_ok=True)
    mark = folder / ".installed"
    with (folder / ".being-made").open("w") as lock:  # ".lock" is uv's
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = not mark.exists() or mark.read_text() != wanted
        yield missing
        if missing:
            mark.write_text(wanted)


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
