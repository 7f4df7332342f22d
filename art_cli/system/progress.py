"""Reports of progress, so that no wait is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

LOOKS = 1.0  # seconds between two looks at whether something has been silent for too long


class Report(Protocol):
    """Told what is going on."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """`done` of `total`, where that is known."""
        ...


def silent(text: str, done: int | None = None, total: int | None = None) -> None:
    """Report to nobody."""


_listener: Report = silent


def listen(report: Report) -> None:
    """Let `report` hear what is told where no Report is handed to: in an env, say."""
    global _listener
    _listener = report


def tell(text: str, done: int | None = None, total: int | None = None) -> None:
    """Tell whoever listens what is going on; an env calls it where its scenarios take long."""
    _listener(text, done, total)


class Pulse:
    """Calls `beat` every second from a thread of its own, from `start` to `stop`.

    The main thread may be busy meanwhile: it imports torch, loads weights, or computes an update.
    """

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin; the thread does not keep the process alive."""
        threading.Thread(target=self._run, name="progress", daemon=True).start()

    def stop(self) -> None:
        """End; a beat that is under way ends by itself."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(LOOKS):
            self._beat()
