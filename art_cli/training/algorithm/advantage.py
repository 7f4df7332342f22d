"""How much better than its siblings a trajectory was."""

from __future__ import annotations

import statistics

from art_cli.types import TrajectoryGroup

SMALL_STD = 1e-6  # keeps near-ties finite; far below any reward difference that means something


def set_advantages(groups: list[TrajectoryGroup], kind: str) -> None:
    """Write into each trajectory that has a reward its advantage over its siblings."""
    everyone = advantages([g.rewards for g in groups], kind)
    for group, values in zip(groups, everyone, strict=True):
        for trajectory, value in zip(group.valid, values, strict=True):
            trajectory.advantage = value


def advantages(rewards_by_group: list[list[float]], kind: str) -> list[list[float]]:
    """Return one advantage a trajectory, group by group.

    - `mean`: r - mean(group), after Dr. GRPO (2503.20783): no division that inflates near-ties
    - `group_std`: that over the group's sample standard deviation (GRPO, 2402.03300, eq. 21)
    - `batch_std`: that over the sample standard deviation of all rewards of the step
    - `leave_one_out`: r - mean(the others) (RLOO, 2402.14740)
    """
    centered = [[r - statistics.fmean(rewards) for r in rewards] for rewards in rewards_by_group]
    if kind == "mean":
        return centered
    if kind == "leave_one_out":
        return [[a * len(group) / max(1, len(group) - 1) for a in group] for group in centered]
    if kind == "batch_std":
        everything = [r for rewards in rewards_by_group for r in rewards]
        return [[a / _scale(everything) for a in group] for group in centered]
    assert kind == "group_std", kind
    return [
        [a / _scale(rewards) for a in group]
        for group, rewards in zip(centered, rewards_by_group, strict=True)
    ]


def has_gradient(rewards: list[float]) -> bool:
    """Return whether the group teaches anything: not if all its rewards are equal."""
    return max(rewards) - min(rewards) > SMALL_STD if rewards else False


def _scale(rewards: list[float]) -> float:
    return (statistics.stdev(rewards) if len(rewards) > 1 else 0.0) + SMALL_STD
