"""Packing of the running program as a wheel, so that a cluster gets this version with its edits."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from art_cli.errors import PreflightError

DISTRIBUTION = "art-cli"
TAG = "py3-none-any"
LEFT_OUT = {"__pycache__", ".DS_Store"}
SAME_TIME = (1980, 1, 1, 0, 0, 0)  # a fixed time makes builds reproducible


def pack_wheel(folder: Path) -> Path:
    """Write the wheel into `folder`. Return its file. Raises PreflightError.

    It is built from the imported packages, so it needs neither the network nor a build, and works
    for an editable install as well as for one from an index.
    """
    try:
        dist = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        raise PreflightError(
            f"{DISTRIBUTION} is not installed in this Python, so it cannot be shipped; install it: "
            "pip install -e ."
        ) from None
    metadata = dist.read_text("METADATA") or dist.read_text("PKG-INFO")
    packages = (dist.read_text("top_level.txt") or "").split()
    assert metadata and packages
    stem = f"{DISTRIBUTION.replace('-', '_')}-{dist.version}"
    info = f"{stem}.dist-info"
    files = {name: path.read_bytes() for name, path in _sources(packages)}
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/entry_points.txt"] = (dist.read_text("entry_points.txt") or "").encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: art\nRoot-Is-Purelib: true\nTag: {TAG}\n".encode()
    )
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    wheel = folder / f"{stem}-{TAG}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, SAME_TIME), content, zipfile.ZIP_DEFLATED)
    return wheel


def _sources(packages: list[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name in the wheel, path) of every file of the packages."""
    for package in sorted(packages):
        spec = find_spec(package)
        assert spec and spec.submodule_search_locations, package
        root = Path(spec.submodule_search_locations[0])
        for path in sorted(root.rglob("*")):
            if path.is_file() and not LEFT_OUT & {*path.parts}:
                yield f"{package}/{path.relative_to(root).as_posix()}", path


def _record(files: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()
