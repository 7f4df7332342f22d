"""Two advantages to compare with the built-in ones; docs/lab.md has what came out.

art compare configs/quickstart.yaml train.advantage=configs/lab/credit.py:turn_credit --seeds 16
"""

import statistics
from collections import defaultdict

from art_cli import Trajectory, TrajectoryGroup

SHARE = 0.5  # of the advantage that is a turn's own


def turn_credit(groups: list[TrajectoryGroup]) -> list[list[list[float]]]:
    """Compare each turn with the siblings' turns in the same state, as GiGPO does (2505.10978).

    A turn's state is all that the env had answered before it. What follows a turn is worth the
    reward of its trajectory: envs pay at the end.
    """
    out = []
    for group in groups:
        average = statistics.fmean(group.rewards) if group.rewards else 0.0
        by_state: dict[tuple, list[float]] = defaultdict(list)
        for t in group.valid:
            for turn in range(t.num_sampled_turns):
                by_state[state(t, turn)].append(t.reward)
        out.append(
            [
                [
                    (1 - SHARE) * (t.reward - average)
                    + SHARE * (t.reward - statistics.fmean(by_state[state(t, turn)]))
                    for turn in range(t.num_sampled_turns)
                ]
                for t in group.valid
            ]
        )
    return out


def state(t: Trajectory, turn: int) -> tuple:
    """Return what the policy had seen of the env before a turn."""
    return tuple((s.tool, s.result) for s in t.steps if s.turn < turn)


def max_rl(groups: list[TrajectoryGroup]) -> list[list[float]]:
    """Return (r - mean) / mean: rare successes count more, as in MaxRL (2602.02710)."""
    out = []
    for group in groups:
        average = statistics.fmean(group.rewards) if group.rewards else 0.0
        out.append([(r - average) / max(average, 1e-6) for r in group.rewards])
    return out
