"""A run directory on storage that outlives its machine: whole files, each written once.

What buckets are mounted by knows no rename of folders, no appending and no locks, all of which a
run needs. So the run is on the machine's own disk, and after each checkpoint all of it becomes one
archive on the storage. One that was cut off has no directory at its end, and is not taken.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEEP = 2  # the newest may be torn


def save(run: Path, storage: Path) -> Path:
    """Keep the whole run directory in the folder `storage`. Return the archive.

    The run may go on meanwhile: checkpoints are read first, so the metrics beside them are never
    older than they are. Raises OSError.
    """
    storage.mkdir(parents=True, exist_ok=True)
    last = max(map(_number, storage.glob("*.zip")), default=0)
    target = storage / f"{last + 1:08d}.zip"
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / target.name
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as writer:
            for path in _files(run):
                with suppress(FileNotFoundError):  # an old checkpoint, removed at this instant
                    writer.write(path, path.relative_to(run))
        shutil.copyfile(archive, target)
    for old in sorted(storage.glob("*.zip"), key=_number)[:-KEEP]:
        old.unlink()
    return target


def restore(storage: Path, run: Path) -> bool:
    """Make the run directory as the newest whole archive has it, unless it is there already.

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
    """Those worth keeping; the checkpoints' first. Names with a dot are of something half done."""
    found = [p for p in sorted(run.rglob("*")) if p.is_file() and p.name != "run.lock"]
    whole = [p for p in found if not any(part[0] == "." for part in p.relative_to(run).parts)]
    return iter(sorted(whole, key=lambda p: p.relative_to(run).parts[0] != "checkpoints"))


def _number(path: Path) -> int:
    return int(path.stem) if path.stem.isdecimal() else 0
