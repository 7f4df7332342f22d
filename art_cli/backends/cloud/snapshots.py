"""Snapshots of a run directory on storage that outlives its machine.

Mounted buckets support neither renaming folders, nor appending, nor locks, which a run needs. So
the run is on the machine's own disk, and after each checkpoint it is written as one archive to the
storage. A truncated archive lacks its directory at the end, and is ignored.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEEP = 2  # the newest may be incomplete


def save(run: Path, storage: Path) -> Path:
    """Write the whole run directory as an archive into the folder `storage`. Return the archive.

    The run may continue meanwhile: checkpoints are read first, so metrics are never older than the
    checkpoints. Raises OSError.
    """
    storage.mkdir(parents=True, exist_ok=True)
    last = max(map(_number, storage.glob("*.zip")), default=0)
    target = storage / f"{last + 1:08d}.zip"
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / target.name
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as writer:
            for path in _files(run):
                with suppress(FileNotFoundError):  # an old checkpoint that was just removed
                    writer.write(path, path.relative_to(run))
        shutil.copyfile(archive, target)
    for old in sorted(storage.glob("*.zip"), key=_number)[:-KEEP]:
        old.unlink()
    return target


def restore(storage: Path, run: Path) -> bool:
    """Restore the run directory from the newest complete archive, unless it exists.

    Return whether there was one. Raises OSError.
    """
    if run.exists():
        return True
    for path in sorted(storage.glob("*.zip"), key=_number, reverse=True):
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if archive.testzip() is None:
                _unpack(archive, run)
                return True
    return False


def _unpack(archive: zipfile.ZipFile, run: Path) -> None:
    beside = run.with_name(f".{run.name}.restoring")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    archive.extractall(beside)
    os.replace(beside, run)


def _files(run: Path) -> Iterator[Path]:
    """Return the files to store, checkpoints first. Names with a dot are incomplete files."""
    found = [p for p in sorted(run.rglob("*")) if p.is_file() and p.name != "run.lock"]
    whole = [p for p in found if not any(part[0] == "." for part in p.relative_to(run).parts)]
    return iter(sorted(whole, key=lambda p: p.relative_to(run).parts[0] != "checkpoints"))


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdecimal() else 0
