"""Time that a thread was ready to run but had no processor, because the machine was busy.

Linux counts it for each thread (/proc/self/task/ID/schedstat). On other systems it is unknown, and
no time counts as lost.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

TASKS = Path("/proc/self/task")
LEAST = 0.2  # minimum share of time that counts on a busy machine, so every wait ends
NANOSECONDS = 1e-9


def starved(thread_id: int) -> float:
    """Return the seconds that a thread was ready to run but did not, since its start.

    `thread_id` is the system's (threading.get_native_id()).
    """
    try:
        return int((TASKS / str(thread_id) / "schedstat").read_text().split()[1]) * NANOSECONDS
    except (OSError, ValueError, IndexError):  # the thread has ended, or the system does not count
        return 0.0


class FairClock:
    """A clock that stops while the machine has no processor for this process."""

    def __init__(self, interval: float) -> None:
        """Threads are measured at most once in `interval` seconds."""
        self._interval = interval
        self._began = self._looked = time.monotonic()
        self._before = _all_starved()
        self._counted = 0.0

    def seconds(self) -> float:
        """Return the seconds since creation, without those lost because the machine was busy.

        The thread that lost most counts, since the work may have waited for it.
        """
        now = time.monotonic()
        if now - self._looked >= self._interval:
            self._looked, passed = now, now - self._began
            starved_now = _all_starved()
            lost = max((s - self._before.get(t, 0.0) for t, s in starved_now.items()), default=0.0)
            self._counted = max(passed - lost, LEAST * passed)
        return self._counted


def _all_starved() -> dict[int, float]:
    try:
        return {int(name): starved(int(name)) for name in os.listdir(TASKS)}
    except OSError:
        return {}
