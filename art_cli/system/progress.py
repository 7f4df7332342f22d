"""Progress reports, so that no wait is without output."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

LOOKS = 1.0  # seconds between beats


class Report(Protocol):
    """Receives progress."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Report `text`, with `done` of `total` if known."""
        ...


def silent(text: str, done: int | None = None, total: int | None = None) -> None:
    """Ignore all progress."""


_listener: Report = silent


def listen(report: Report) -> None:
    """Send progress to `report` from code that gets no `Report` argument, such as an env."""
    global _listener
    _listener = report


def tell(text: str, done: int | None = None, total: int | None = None) -> None:
    """Report progress to the listener. An env may call it if its scenarios take long."""
    _listener(text, done, total)


class Pulse:
    """Calls `beat` every second from its own thread, from `start` to `stop`.

    The main thread may be busy meanwhile: it imports torch, loads weights, or computes an update.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._ended = threading.Event()

    def start(self) -> None:
        """Start the thread, which does not keep the process alive."""
        threading.Thread(target=self._run, name="progress", daemon=True).start()

    def stop(self) -> None:
        """Stop; a beat in progress is completed."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOKS):
            self._beat()
