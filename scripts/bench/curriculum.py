"""Simulate ways to choose scenarios, and groups that end early; no model plays.

    python scripts/bench/curriculum.py

First, of the chosen groups the share that differs, and of a batch the share of its commonest kind,
with three ways to take some of the candidates. Then, of groups that are played on only where their
first k trajectories differ, the signal (the sum of squared advantages) and the trajectories, over
those of whole groups, by the rate of success.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable
from math import comb

from art_cli.training.curriculum.signal import Signal
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

BATCH, BATCHES, SIZE = 16, 100, 8


class Highest(Signal):
    """Takes the scenarios with the highest estimates."""

    def _draw(self, scenario: Scenario, rng: random.Random) -> float:
        return self.chance(scenario)


class Proportional(Signal):
    """Draws scenarios in proportion to their estimates, as the first of exponential clocks."""

    def _draw(self, scenario: Scenario, rng: random.Random) -> float:
        return -rng.expovariate(self.chance(scenario))


def chosen(way: type[Signal], differs: Callable[[Scenario], float]) -> tuple[float, float]:
    """Return the shares over the second half of the batches."""
    kinds = "abcd"
    every = [
        Scenario(id=str(i), split="train", seed=i, data={"kind": kinds[i % len(kinds)]})
        for i in range(4000)
    ]
    sampler, rng = way(every, 0), random.Random(1)
    differed, common = [], []
    for n in range(BATCHES):
        batch = sampler.take(n * BATCH, BATCH)
        groups = [
            TrajectoryGroup(
                [
                    Trajectory(scenario=s, reward=1.0),
                    Trajectory(scenario=s, reward=float(rng.random() >= differs(s))),
                ]
            )
            for s in batch
        ]
        differed.append(sampler.note(n * BATCH, groups)["differed"])
        common.append(max(Counter(s.data["kind"] for s in batch).values()) / BATCH)
    late = slice(BATCHES // 2, None)
    return statistics.fmean(differed[late]), statistics.fmean(common[late])


def cut(success: float, first: int) -> tuple[float, float]:
    """Return signal and trajectories of groups that end early, relative to complete groups."""
    whole = kept = played = 0.0
    for num in range(SIZE + 1):
        chance = comb(SIZE, num) * success**num * (1 - success) ** (SIZE - num)
        alike = (comb(SIZE - num, first) + comb(num, first)) / comb(SIZE, first)
        signal = num * (SIZE - num) / SIZE
        whole += chance * signal
        kept += chance * signal * (1 - alike)
        played += chance * (alike * first + (1 - alike) * SIZE)
    return kept / whole, played / SIZE


def main() -> None:
    """Print the two tables."""
    for way in (Highest, Proportional, Signal):
        better, _ = chosen(way, lambda s: 0.9 if s.data["kind"] == "c" else 0.3)
        _, common = chosen(way, lambda s: 0.5)
        print(f"{way.__name__:13} one kind at 0.9, three at 0.3: {better:.2f} of the chosen differ")
        print(f"{'':13} all kinds at 0.5: the commonest has {common:.0%} of a batch")
    for first in (2, 3, 4):
        for success in (0.01, 0.05, 0.1, 0.2, 0.5):
            signal, played = cut(success, first)
            print(
                f"k = {first} of {SIZE}, success {success:4}: signal {signal:.2f}, trajectories "
                f"{played:.2f}, signal a trajectory {signal / played:.2f}"
            )


if __name__ == "__main__":
    main()
