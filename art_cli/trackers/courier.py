"""A thread that does what others do not wait for, one thing after the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable


class Courier:
    """Jobs in the order in which they were handed over. A job must not raise."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        # A daemon: what it is stuck in cannot hold up the exit.
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def hand(self, job: Callable[[], object]) -> None:
        """Have it done, some time."""
        self._jobs.put(job)

    def catches_up(self, seconds: float) -> bool:
        """Wait until all that was handed over has been done; False if that takes longer."""
        done = threading.Event()
        self._jobs.put(done.set)
        return done.wait(seconds)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
