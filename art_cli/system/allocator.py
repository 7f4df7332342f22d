"""Memory of this process: the C library's arenas, and a limit."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from collections.abc import Iterator

M_ARENA_MAX = -8  # parameter of glibc's mallopt
ARENAS = 2


def few_arenas() -> None:
    """Let threads share glibc's arenas, each of which keeps its peak memory.

    A run parses long texts in some twenty threads. Does nothing with another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)


@contextlib.contextmanager
def at_most(num_bytes: int) -> Iterator[None]:
    """Limit additional memory of this process inside this context; beyond it, MemoryError.

    The limit applies to all threads. A single allocation in C cannot be interrupted, and the kernel
    kills a process that fills the machine.
    """
    limits = resource.getrlimit(resource.RLIMIT_AS)
    try:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        yield
        return
    highest = limits[1] if limits[1] != resource.RLIM_INFINITY else used + num_bytes
    resource.setrlimit(resource.RLIMIT_AS, (min(used + num_bytes, highest), limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
