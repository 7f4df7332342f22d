"""How the C library keeps memory for a process with many threads."""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8  # of glibc's mallopt
ARENAS = 2


def few_arenas() -> None:
    """Let threads share glibc's arenas: each would keep the most that it ever held to itself.

    A run reads long texts in some twenty threads. Does nothing where the C library is another.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, ARENAS)
