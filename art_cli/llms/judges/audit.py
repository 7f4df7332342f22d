"""Statistics of a judge's reliability on stored trajectories, as pure functions."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

SAME = 1e-6  # values that differ by less count as equal
RESAMPLES = 1000  # bootstrap samples


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedGroup:
    """One group, with a judge's votes on it."""

    votes: list[list[float]]  # for each vote, the scores of the trajectories
    orders: list[list[int]]  # for each vote, trajectory numbers in the order shown
    env_rewards: list[float | None]
    lengths: list[int]  # characters of the transcripts

    @property
    def scores(self) -> list[float]:
        """The mean score of each trajectory over the votes."""
        return [statistics.fmean(v) for v in zip(*self.votes, strict=True)]


@dataclass(frozen=True, slots=True)
class GroupMean:
    """A mean over groups with its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The statistics of a judge.

    A field is None if the trajectories do not determine it: no env reward, a single vote, equal
    lengths.
    """

    agreement: GroupMean | None  # share of pairs ordered like the env's own reward
    tau: GroupMean | None  # Kendall's tau-b against the env's reward
    consistency: GroupMean | None  # share of pairs that two votes order equally
    first_gain: GroupMean | None  # score gain of being shown first
    length_tau: GroupMean | None  # Kendall's tau-b of score and length
    env_length_tau: GroupMean | None  # the same for the env's reward, the deserved part
    tie_rate: GroupMean | None


def audit(groups: Sequence[JudgedGroup], seed: int = 0) -> Audit:
    """Return the statistics. Each is a mean over groups, its interval a bootstrap over groups."""

    def estimate(statistic: Callable[[JudgedGroup], float | None]) -> GroupMean | None:
        values = [v for v in map(statistic, groups) if v is not None]
        return mean_with_ci(values, seed)

    return Audit(
        agreement=estimate(lambda g: agreement(g.scores, g.env_rewards)),
        tau=estimate(lambda g: kendall_tau(g.scores, g.env_rewards)),
        consistency=estimate(_consistency),
        first_gain=estimate(_first_gain),
        length_tau=estimate(lambda g: kendall_tau(g.scores, g.lengths)),
        env_length_tau=estimate(lambda g: kendall_tau(g.env_rewards, g.lengths)),
        tie_rate=estimate(lambda g: _share(_order(a, b) == 0 for a, b in _pairs(g.scores))),
    )


def mean_with_ci(values: Sequence[float], seed: int = 0) -> GroupMean | None:
    """Return the mean and its 95% interval, by bootstrap, or None without values."""
    if not values:
        return None
    rng = random.Random(seed)
    means = sorted(statistics.fmean(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]
    return GroupMean(statistics.fmean(values), low, high)


def agreement(scores: Sequence[float], truth: Sequence[float | None]) -> float | None:
    """Return the share of pairs with different truth in the right order; ties count half."""
    credit = {1: 1.0, 0: 0.5, -1: 0.0}
    return _share(
        credit[_order(a, b) * _order(x, y)]
        for (a, x), (b, y) in _pairs(list(zip(scores, truth, strict=True)))
        if x is not None and y is not None and _order(x, y)
    )


def kendall_tau(xs: Sequence[float | None], ys: Sequence[float | None]) -> float | None:
    """Return Kendall's tau-b (1945), which corrects for ties. None if one side has only ties."""
    both = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    orders = [(_order(a[0], b[0]), _order(a[1], b[1])) for a, b in _pairs(both)]
    num_x, num_y = sum(x != 0 for x, _ in orders), sum(y != 0 for _, y in orders)
    if not (num_x and num_y):
        return None
    return sum(x * y for x, y in orders) / (num_x * num_y) ** 0.5


def _consistency(group: JudgedGroup) -> float | None:
    return _share(
        _order(one[i], one[j]) == _order(two[i], two[j])
        for one, two in _pairs(group.votes)
        for i, j in _pairs(range(len(one)))
    )


def _first_gain(group: JudgedGroup) -> float | None:
    """Return the mean gain in score of a trajectory when shown first, or None."""
    firsts = [order[0] for order in group.orders if order]
    gains = []
    for n in set(firsts):
        shown_first = [vote[n] for vote, f in zip(group.votes, firsts, strict=True) if f == n]
        others = [vote[n] for vote, f in zip(group.votes, firsts, strict=True) if f != n]
        if others:
            gains.append(statistics.fmean(shown_first) - statistics.fmean(others))
    return statistics.fmean(gains) if gains else None


def verdict(found: Audit) -> list[str]:
    """Return the interpretation of the statistics as sentences for the user."""
    out = []
    if e := found.agreement:
        out.append(f"orders {_percent(e)} of pairs as the env does")
        if e.low <= 0.5:
            out.append("that is no better than chance: do not train on it")
    else:
        out.append("the env's own score is equal within each group: agreement is unknown")
    if e := found.consistency:
        out.append(f"orders {_percent(e)} of pairs the same way when asked again")
    if e := found.first_gain:
        sure = e.low > 0 or e.high < 0
        more = ": ask for more votes" if sure and abs(e.value) >= 0.03 else ""
        word = "gain" if e.value >= 0 else "lose"
        out.append(
            f"first-listed trajectories {word} {abs(e.value):.2f} "
            f"[{e.low:+.2f}, {e.high:+.2f}]{more}"
        )
    if (e := found.length_tau) and (deserved := found.env_length_tau) and e.low > deserved.high:
        out.append(
            f"prefers long trajectories (tau {e.value:+.2f}) more than the env's own score does "
            f"({deserved.value:+.2f})"
        )
    if (e := found.tie_rate) and e.value > 0.5:
        out.append(f"gives {_percent(e)} of pairs the same score: little to learn from")
    return out


def _percent(e: GroupMean) -> str:
    return f"{e.value:.0%} [{100 * e.low:.0f}, {100 * e.high:.0f}]"


def _order(a: float, b: float) -> int:
    return 0 if abs(a - b) < SAME else 1 if a > b else -1


def _pairs(values: Sequence[T]) -> list[tuple[T, T]]:
    return list(itertools.combinations(values, 2))


def _share(credits: Iterable[float]) -> float | None:
    found = [float(c) for c in credits]
    return statistics.fmean(found) if found else None
