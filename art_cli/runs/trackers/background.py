"""A thread that does what others do not wait for, one thing after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class BackgroundQueue:
    """Jobs in the order in which they were handed over. A job must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._done = 0
        # A daemon: what it is stuck in cannot hold up the exit.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def hand(self, job: Callable[[], object]) -> None:
        """Queue a job."""
        self._jobs.put(job)

    def catches_up(self, seconds: float) -> bool:
        """Wait until all of it has been done; False once nothing has been done for so long."""
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
