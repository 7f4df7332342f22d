"""The result of a sweep: the ranked trials, and the bias of the best value by selection."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from art_cli.lab.study import RecordState, TrialRecord

ORDER: tuple[RecordState, ...] = ("done", "stopped", "running", "failed")


def ranked(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Return the trials, best first: completed ones, then stopped ones, the latest first."""

    def place(trial: TrialRecord) -> tuple[int, int, float]:
        step = 0 if trial.state == "done" else -(trial.step or 0)
        return ORDER.index(trial.state), step, -(trial.value or 0.0)

    return sorted(trials, key=place)


def best_of(trials: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return the completed trial with the highest value, or None if no trial is complete."""
    first = ranked(trials)[:1]
    return first[0] if first and first[0].state == "done" else None


@dataclass(frozen=True, slots=True)
class Optimism:
    """By how much chance alone lifts the best of so many trials above what it is worth.

    Choosing the highest of `num` noisy values chooses their luck, too: were all trials worth the
    same, the highest would be that of `num` normal variates, on average Blom's (1958)
    Phi^-1((num - 3/8) / (num + 1/4)) standard errors above. It is less where they differ.
    """

    num: int
    error: float  # standard error of one trial's value
    num_seeds: int  # seeds behind `error`; 1: estimated from the episodes of the evaluation alone

    @property
    def errors(self) -> float:
        """The bias in standard errors."""
        return NormalDist().inv_cdf((self.num - 0.375) / (self.num + 0.25))

    @property
    def amount(self) -> float:
        """The bias in units of the metric."""
        return self.errors * self.error


def num_points(trials: Sequence[TrialRecord]) -> int:
    """Return the number of trials with a value of their own."""
    return sum(t.value is not None and t.same_as is None for t in trials)


def optimism(trials: Sequence[TrialRecord], ci: float | None) -> Optimism | None:
    """Return the selection bias of the best trial, or None if the noise of a trial is unknown.

    With several seeds, the noise is the spread between the seeds of a trial. With one seed, only
    `ci` is known, half the width of the 95% interval of the best trial's evaluation. It does not
    include the randomness of training, but it does include the difficulty of the scenarios, which
    is the same for all trials.
    """
    num = num_points(trials)
    seeds = [t.values for t in trials if len(t.values) > 1 and t.same_as is None]
    if seeds:
        num_seeds = len(seeds[0])
        variance = statistics.fmean(statistics.variance(values) for values in seeds)
        return Optimism(num, math.sqrt(variance / num_seeds), num_seeds)
    return Optimism(num, ci / NormalDist().inv_cdf(0.975), 1) if ci else None


def as_json(
    trials: Sequence[TrialRecord], found: Optimism | None, commands: dict[str, str]
) -> dict[str, Any]:
    """Return the ranking as JSON data, the best trial first."""
    best = best_of(trials)
    return {
        "trials": [asdict(trial) for trial in ranked(trials)],
        "best": best and best.point,
        "optimism": found and found.amount,
        **commands,
    }
