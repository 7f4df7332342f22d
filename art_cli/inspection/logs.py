"""The log files of a run and its servers, as readable lines."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from art_cli.errors import UsageError, did_you_mean
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.run_log import RUN_LOG
from art_cli.system.files import open_file

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LONGEST = 1 << 16  # bytes of a line
PAUSE = 0.3  # seconds between checks of a growing file


def log_names(run: RunDir) -> list[str]:
    """Return the names of the logs, the run's own first: `run`, `engine-0`, `rank-1`."""
    names = sorted(path.stem for path in run.logs.glob("*.log"))
    own = Path(RUN_LOG).stem
    return [own, *(n for n in names if n != own)] if own in names else names


def log_file(run: RunDir, name: str) -> Path:
    """Return a log file by its name. Raise UsageError if the run has none of that name."""
    names = log_names(run)
    if name in names:
        return run.logs / f"{name}.log"
    there = f"there are {', '.join(names)}" if names else "there is none"
    raise UsageError(f"{run.root} has no log {name!r}: {there}.{did_you_mean(name, names)}")


def lines_of_log(
    path: Path, last: int | None = None, goes_on: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Yield the lines of a log, or the last ones, and new lines while `goes_on` is true.

    A log that becomes shorter was replaced, and is read from its beginning.
    """
    place = 0
    while True:
        is_last = not goes_on()  # checked before reading, so that the last lines are not missed
        try:
            with open_file(path) as file:
                if os.fstat(file.fileno()).st_size < place:
                    place = 0
                file.seek(place)
                whole = _whole_lines(file, torn=is_last)
                yield from map(_readable, whole if last is None else deque(whole, last))
                place = file.tell()
        except OSError as e:
            raise UsageError(f"{path} cannot be read: {e.strerror}") from None
        last = None
        if is_last:
            return
        time.sleep(PAUSE)


def _whole_lines(file: BinaryIO, *, torn: bool) -> Iterator[bytes]:
    """Yield the complete lines, or with `torn` also the incomplete last one.

    Only the beginning of an overlong line, which is not text, is returned.
    """
    while begin := file.readline(LONGEST):
        size, end = len(begin), begin
        while len(end) == LONGEST and not end.endswith(b"\n"):
            end = file.readline(LONGEST)
            size += len(end)
        if not torn and not end.endswith(b"\n"):
            file.seek(-size, os.SEEK_CUR)
            return
        begin = begin.removesuffix(b"\n")
        yield begin if size <= LONGEST else begin + b" [and %d bytes]" % (size - len(begin))


def _readable(line: bytes) -> str:
    """Return a line without colors and without text that a carriage return overwrites."""
    text = line.decode(errors="replace").rstrip("\r")
    return COLOURS.sub("", text.rpartition("\r")[2])
