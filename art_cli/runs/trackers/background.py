"""A thread that runs jobs in order, without anyone waiting for them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class BackgroundQueue:
    """Jobs that run in the order in which they were queued. A job must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._done = 0
        # A daemon thread: a job that hangs cannot block the exit.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def hand(self, job: Callable[[], object]) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def catches_up(self, seconds: float) -> bool:
        """Wait until all jobs are done. Return False if none finishes for `seconds`."""
        caught_up = threading.Event()
        self._jobs.put(caught_up.set)
        done = -1
        while done != self._done and not caught_up.is_set():
            done = self._done
            caught_up.wait(seconds)
        return caught_up.is_set()

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            self._done += 1
