"""Scenarios whose groups will most likely differ: only these have a gradient.

Of each scenario, of its level and kind, and of all together it is counted how many groups differed.
What is known of all is the prior of a kind, and that of the kind is the prior of its scenarios: so
one that was never played borrows. Counts fade, since the policy moves.

Of `CANDIDATES` scenarios a place, in the order of an epoch, those with the highest chance are
taken. Every `EXPLORE_EVERY`-th place is explored: it goes by no estimate, so that each scenario is
played once in `EXPLORE_EVERY` epochs, and the share of groups that differ among all is known.

After prioritized level replay (2010.03934), with a posterior as in MoPPS (2507.04632) of what DAPO
(2503.14476) filters by once it has been played.
"""

from __future__ import annotations

import statistics
from typing import Any

from art_cli.envs.base import seed_of
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.curriculum.base import Sampler
from art_cli.training.curriculum.uniform import Uniform
from art_cli.types import Scenario, TrajectoryGroup

CANDIDATES = 4  # that are looked at for each that is taken
EXPLORE_EVERY = 4
HALF_LIFE = 20  # batches, in which a count fades to its half
PRIOR = 4.0  # groups that what is borrowed counts for

Counts = list[float]  # groups that differed, that were played, and the batch that both are of
NONE: Counts = [0.0, 0.0, 0.0]


class Signal(Sampler):
    """Chooses by the chance that a scenario's group will differ."""

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        super().__init__(scenarios, seed)
        self._explored = Uniform(scenarios, seed)
        self._candidates = Uniform(scenarios, seed_of(seed, "candidates"))
        self._batch = 0
        self._counts: dict[str, Counts] = {}

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the likeliest to differ of the next candidates, and explored ones between."""
        places = range(cursor, cursor + num)
        explored = {i: self._explored.take(i // EXPLORE_EVERY, 1)[0] for i in places if _is_free(i)}
        taken = {s.id for s in explored.values()}
        found = self._candidates.take(cursor * CANDIDATES, num * CANDIDATES)
        pool = {s.id: s for s in found if s.id not in taken} or {s.id: s for s in found}
        ranked = sorted(pool.values(), key=self.chance, reverse=True)
        chosen = iter(ranked * num)  # again from the first where there are too few
        return [explored[i] if i in explored else next(chosen) for i in places]

    def chance(self, scenario: Scenario) -> float:
        """Return the chance that a group of the scenario will differ."""
        chance = 0.5
        for name in _names(scenario):
            differed, played = self._left(name)
            chance = (differed + PRIOR * chance) / (played + PRIOR)
        return chance

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Count the groups, once it is known how well they were foreseen."""
        played = [(i, g) for i, g in enumerate(groups, start=cursor) if g.rewards]
        differs = {i: has_gradient(g.rewards) for i, g in played}
        chances = {i: self.chance(g.trajectories[0].scenario) for i, g in played}
        self._batch += 1
        for i, group in played:
            for name in _names(group.trajectories[0].scenario):
                differed, num = self._left(name)
                self._counts[name] = [differed + differs[i], num + 1, self._batch]
        free = [i for i in differs if _is_free(i)]
        chosen = [i for i in differs if not _is_free(i)]
        numbers = {"explored": len(free) / len(played)} if played else {}
        if chosen:
            numbers["expected"] = statistics.fmean(chances[i] for i in chosen)
            numbers["differed"] = statistics.fmean(differs[i] for i in chosen)
        if free:
            numbers["differed_explored"] = statistics.fmean(differs[i] for i in free)
        return numbers

    def state(self) -> dict[str, Any]:
        """Return the counts themselves: they are many, and copied only where they are written."""
        return {"batch": self._batch, "counts": self._counts}

    def load(self, state: dict[str, Any]) -> None:
        """Take back the counts."""
        self._batch, self._counts = state["batch"], state["counts"]

    def _left(self, name: str) -> tuple[float, float]:
        """Return the groups that differed and those that were played, faded until now."""
        differed, played, batch = self._counts.get(name, NONE)
        left = 0.5 ** ((self._batch - batch) / HALF_LIFE)
        return differed * left, played * left


def _is_free(place: int) -> bool:
    """Return whether a place goes to whichever scenario is next."""
    return place % EXPLORE_EVERY == EXPLORE_EVERY - 1


def _names(scenario: Scenario) -> list[str]:
    """Return what a scenario is counted under, the widest first."""
    tags = [f"{tag}={value}" for tag, value in scenario.tags.items()]
    both = [", ".join(tags)] if len(tags) > 1 else []
    return ["all", *tags, *both, f"scenario {scenario.id}"]
