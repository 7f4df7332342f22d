"""What a run and its servers have said: logs/ of its directory, as lines that can be read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from art_cli.errors import UsageError, did_you_mean
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.run_log import RUN_LOG

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
PAUSE = 0.3  # seconds between looks at a file that may grow


def log_names(run: RunDir) -> list[str]:
    """Return what there is to read, the run's own first: `run`, `engine-0`, `rank-1`."""
    names = sorted(path.stem for path in run.logs.glob("*.log"))
    own = Path(RUN_LOG).stem
    return [own, *(n for n in names if n != own)] if own in names else names


def log_file(run: RunDir, name: str) -> Path:
    """Return a log by its name. Raise UsageError where the run has none, with what there is."""
    names = log_names(run)
    if name in names:
        return run.logs / f"{name}.log"
    there = f"there are {', '.join(names)}" if names else "there is none"
    raise UsageError(f"{run.root} has no log {name!r}: {there}.{did_you_mean(name, names)}")


def lines_of_log(
    path: Path, last: int | None = None, goes_on: Callable[[], bool] = lambda: False
) -> Iterator[str]:
    """Yield the lines of a log, or the last of them, and what is added while the run `goes_on`.

    A log that becomes shorter is another one, and read from its begin.
    """
    place, rest = 0, b""
    while True:
        is_last = not goes_on()  # asked first: what came before the end is read yet
        if path.stat().st_size < place:
            place, rest = 0, b""
        with open(path, "rb") as file:
            file.seek(place)
            text = file.read()
        place += len(text)
        *lines, rest = (rest + text).split(b"\n")
        if is_last and rest:
            lines.append(rest)
        yield from map(_readable, lines if last is None else lines[max(0, len(lines) - last) :])
        last = None
        if is_last:
            return
        time.sleep(PAUSE)


def _readable(line: bytes) -> str:
    """Return a line without colours, and without what its own carriage returns write over."""
    text = line.decode(errors="replace").rstrip("\r")
    return COLOURS.sub("", text.rpartition("\r")[2])
