"""Learning rate schedules."""

from __future__ import annotations

import math


def factor(schedule: str, step: int, total: int, warmup: int) -> float:
    """Return the learning rate's factor at a step (from 0): linear warm-up, then decay.

    `linear` and `cosine` reach zero one step after the last.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = (step - warmup) / max(1, total - warmup)
    if schedule == "linear":
        return max(0.0, 1 - progress)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    assert schedule == "constant", schedule
    return 1.0
