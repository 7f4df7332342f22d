"""logs/run.log: the plain lines of a run's console with times, whatever the terminal shows."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from art_cli.runs.trackers.console import Console
from art_cli.system.files import to_append
from art_cli.terminal.screen import WIDE, Screen

RUN_LOG = "run.log"


class _LogLines(io.TextIOBase):
    """A stream that buffers lines until it has a file. Disk errors are ignored."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._waiting = ""  # text that is not in the file yet
        self._begins = True  # True at the beginning of a line
        self.path: Path | None = None

    def write(self, text: str) -> int:
        stamp = f"{datetime.now():%m-%d %H:%M:%S}  " if self._begins and text else ""
        self._begins = text.endswith("\n")
        self._waiting += stamp + text
        return len(text)

    def flush(self) -> None:
        """Append buffered text. The file is opened each time, because lines are rare."""
        if self.path is None:
            return
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "a", encoding="utf-8", opener=to_append) as file:
                file.write(self._waiting)
        self._waiting = ""


class LoggedConsole:
    """A run's console and its log, which receive the same calls."""

    def __init__(
        self, console: Console, steps: int, header: str, history: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        self._lines = _LogLines()
        plain = Screen(file=self._lines, width=WIDE)
        self._log = Console(steps, header, plain=True, history=history, console=plain)
        self._console = console
        self._log.say(f"$ art {' '.join(sys.argv[1:])}")
        self._log.say(header)

    def keep(self, folder: Path) -> None:
        """Append all output, including that so far, to the log in a folder."""
        self._lines.path = folder / RUN_LOG
        self._lines.flush()

    def note(self, line: str) -> None:
        """Write a line to the log only."""
        self._log.say(line)

    def say(self, line: str) -> None:
        """See Console."""
        self._log.say(line)
        self._console.say(line)

    def phase(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """See Console."""
        self._log.phase(text, done, total)
        self._console.phase(text, done, total)

    def log(self, metrics: Mapping[str, Any]) -> None:
        """See Console."""
        self._log.log(metrics)
        self._console.log(metrics)

    def finish(self, state: str) -> None:
        """See Console."""
        self._log.finish(state)
        self._console.finish(state)
