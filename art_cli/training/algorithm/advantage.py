"""Advantages: the reward of a trajectory relative to its siblings.

An advantage function takes the groups of a step. It returns, for each group, the credit of each of
its `valid` trajectories: a number, or a number for each sampled turn. The functions here have the
same interface as a custom one, which a config names as FILE.py:NAME.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, cast

from art_cli.envs.user_code import blaming, is_plain, named, place_of
from art_cli.errors import UsageError
from art_cli.training.algorithm.sample_groups import sample_groups
from art_cli.types import Trajectory, TrajectoryGroup

SMALL_STD = 1e-6  # keeps near-ties finite; far below any meaningful reward difference
KEY = "train.advantage"

Credit = float | list[float]  # of a trajectory, or of each of its sampled turns
AdvantageFn = Callable[[list[TrajectoryGroup]], list[list[Credit]]]


def mean(groups: list[TrajectoryGroup]) -> list[list[Credit]]:
    """Return r - mean(group), after Dr. GRPO (2503.20783), which does not inflate near-ties."""
    return [[*_centered(group.rewards)] for group in groups]


def group_std(groups: list[TrajectoryGroup]) -> list[list[Credit]]:
    """Return r - mean(group), over the group's sample std (GRPO, 2402.03300, eq. 21)."""
    scales = [_scale(g.rewards) for g in groups]
    return [
        [a / scale for a in _centered(g.rewards)] for g, scale in zip(groups, scales, strict=True)
    ]


def batch_std(groups: list[TrajectoryGroup]) -> list[list[Credit]]:
    """Return r - mean(group), over the sample standard deviation of all rewards of the step."""
    scale = _scale([r for group in groups for r in group.rewards])
    return [[a / scale for a in _centered(group.rewards)] for group in groups]


def leave_one_out(groups: list[TrajectoryGroup]) -> list[list[Credit]]:
    """Return r - mean(other trajectories of the group) (RLOO, 2402.14740)."""
    return [
        [a * len(g.valid) / max(1, len(g.valid) - 1) for a in _centered(g.rewards)] for g in groups
    ]


ADVANTAGES: dict[str, AdvantageFn] = {
    "mean": mean,
    "group_std": group_std,
    "batch_std": batch_std,
    "leave_one_out": leave_one_out,
}


@lru_cache  # edits to the file during a run have no effect
def advantage_named(name: str) -> AdvantageFn:
    """Return the function that `train.advantage` names. Raises UsageError."""
    function: Any = named(KEY, name, ADVANTAGES)
    if not callable(function):
        raise UsageError(
            f"{KEY}: {name} is not a function; expected (groups) -> for each group, "
            "for each of its valid trajectories, a number or a number a turn"
        )
    return cast(AdvantageFn, function)


def set_advantages(groups: list[TrajectoryGroup], name: str) -> None:
    """Compute the advantage of each trajectory that has a reward, and store it in the trajectory.

    Raises UsageError if a custom function raises or returns a value of the wrong form.
    """
    function = advantage_named(name)
    with blaming(KEY, name, function):
        given = function(groups)
    where = f"{KEY}: {name} ({place_of(function)}) returned"
    for group, values in zip(
        groups, _of(groups, given, f"{where} {{}} for {{}} groups"), strict=True
    ):
        told = f"{where} {{}} for a group of {{}} trajectories with a reward"
        for trajectory, credit in zip(group.valid, _of(group.valid, values, told), strict=True):
            _set(trajectory, credit, where)


def try_advantage(name: str) -> str | None:
    """Call the function on made-up groups, to report its errors before the run starts.

    Returns a warning if the error may be caused by the made-up groups lacking data of a real env.
    Raises UsageError if the function is wrong for any input.
    """
    try:
        set_advantages(sample_groups(), name)
    except UsageError as e:
        if e.__cause__ is None or is_plain(e.__cause__, advantage_named(name)):
            raise
        return (
            f"{e}. That was on made-up groups. Ignore it if the function needs data that only your "
            "env gives"
        )
    return None


def teaches(group: TrajectoryGroup) -> bool:
    """Return whether a group has a gradient, once its advantages are set."""
    return any(t.advantage or any(t.turn_advantages) for t in group.valid)


def has_gradient(rewards: list[float]) -> bool:
    """Return whether the rewards give a gradient, which equal rewards do not."""
    return max(rewards) - min(rewards) > SMALL_STD if rewards else False


def _set(trajectory: Trajectory, credit: Any, where: str) -> None:
    if isinstance(credit, Real):
        trajectory.turn_advantages = []
        trajectory.advantage = _finite(credit, where)
        return
    told = f"{where} {{}} for a trajectory with {{}} sampled turns"
    turns = [_finite(a, where) for a in _of(range(trajectory.num_sampled_turns), credit, told)]
    trajectory.turn_advantages = turns
    trajectory.advantage = statistics.fmean(turns) if turns else 0.0


def _of(wanted: Sequence[Any], given: Any, told: str) -> Sequence[Any]:
    """Return the list `given` if it has one entry for each of `wanted`. Raises UsageError."""
    if not isinstance(given, list | tuple):
        raise UsageError(told.format(f"{type(given).__name__}, expected a list,", len(wanted)))
    if len(given) != len(wanted):
        raise UsageError(
            f"{told.format(f'{len(given)} entries', len(wanted))}; expected one for each"
        )
    return given


def _finite(value: Any, where: str) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise UsageError(f"{where} {value!r} as an advantage; expected a finite number")
    return float(value)


def _centered(rewards: list[float]) -> list[float]:
    """Return the rewards minus their mean. If all are equal, return exact zeros."""
    if not has_gradient(rewards):
        return [0.0] * len(rewards)
    average = statistics.fmean(rewards)
    return [r - average for r in rewards]


def _scale(rewards: list[float]) -> float:
    """Return the sample standard deviation plus SMALL_STD.

    `statistics.stdev` computes in fractions, which is slow enough to show in the step of a small
    model.
    """
    return math.hypot(*_centered(rewards)) / math.sqrt(max(1, len(rewards) - 1)) + SMALL_STD
