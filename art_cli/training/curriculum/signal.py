"""Sampler that prefers scenarios whose groups are likely to have unequal rewards.

Only such groups have a gradient; the code says that they "differ". The base rate of differing
groups is estimated over all scenarios, from the explored ones. For each tag, each combination of
tags and each scenario, the sampler counts how much more often groups differed than predicted so
far. A scenario that was never played is thus predicted from its tags, and a new tag from the base
rate. The base rate decays fast, since the policy moves; the deviations from it decay slowly.

Each place in a batch is chosen among `CANDIDATES` scenarios in the order of an epoch. A chance is
drawn for each from its posterior, and the highest are played (Thompson sampling), which mixes near
ties. Every `EXPLORE_EVERY`-th place ignores the estimates, so each scenario is played once in
`EXPLORE_EVERY` epochs.

After prioritized level replay (2010.03934), with a posterior as in MoPPS (2507.04632) for the
criterion by which DAPO (2503.14476) filters groups after they were played.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from art_cli.envs.base import seed_of
from art_cli.keys import mask_keys
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.curriculum.base import Sampler
from art_cli.training.curriculum.uniform import Uniform
from art_cli.types import Scenario, TrajectoryGroup

CANDIDATES = 4  # considered for each scenario that is chosen
EXPLORE_EVERY = 4
HALF_LIFE, HALF_LIFE_OF_ALL = 40, 5  # batches after which counts have halved
PRIOR = 4.0  # weight of the prior, in groups
LEAST = 0.02  # bound of a chance, from 0 and from 1: no scenario is dropped for good

Counts = list[float]  # differing groups minus expected, groups played, last batch
NONE: Counts = [0.0, 0.0, 0.0]
ALL = "all"


class Signal(Sampler):
    """Chooses scenarios by the predicted chance that their groups differ; see the module."""

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        super().__init__(scenarios, seed)
        self._explored = Uniform(scenarios, seed)
        self._candidates = Uniform(scenarios, seed_of(seed, "candidates"))
        self._batch = 0
        self._counts: dict[str, Counts] = {}

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the highest-ranked of the next candidates, with explored scenarios in between."""
        places = range(cursor, cursor + num)
        explored = {i: self._explored.take(i // EXPLORE_EVERY, 1)[0] for i in places if _is_free(i)}
        taken = {s.id for s in explored.values()}
        found = self._candidates.take(cursor * CANDIDATES, num * CANDIDATES)
        pool = {s.id: s for s in found if s.id not in taken} or {s.id: s for s in found}
        rng = random.Random(seed_of(self.seed, "chosen", cursor))
        drawn = {id: self._draw(s, rng) for id, s in pool.items()}
        ranked = sorted(pool.values(), key=lambda s: drawn[s.id], reverse=True)
        chosen = iter(ranked * num)  # starts over if there are too few
        return [explored[i] if i in explored else next(chosen) for i in places]

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Update the counts from the groups. Return how well the predictions matched."""
        played = [(place, g) for place, g in enumerate(groups, start=cursor) if g.rewards]
        scenarios = [g.trajectories[0].scenario for _, g in played]
        differs = [has_gradient(g.rewards) for _, g in played]
        expected = [self.chance(s) for s in scenarios]
        free = [i for i, (place, _) in enumerate(played) if _is_free(place)]
        chosen = [i for i, (place, _) in enumerate(played) if not _is_free(place)]
        self._batch += 1
        names = [_names(s) for s in scenarios]
        for depth in range(max(map(len, names), default=0)):
            # The base rate uses explored places only: chosen ones would bias it.
            here = [i for i in (range(len(played)) if depth else free) if len(names[i]) > depth]
            more = {i: differs[i] - self._sum(names[i][:depth]) for i in here}
            for i in here:
                self._count(names[i][depth], more[i])
        numbers = {"explored": len(free) / len(played)} if played else {}
        if chosen:
            numbers["expected"] = statistics.fmean(expected[i] for i in chosen)
            numbers["differed"] = statistics.fmean(differs[i] for i in chosen)
        if free:
            numbers["differed_explored"] = statistics.fmean(differs[i] for i in free)
        return numbers

    def chance(self, scenario: Scenario) -> float:
        """Return the predicted chance that a group of the scenario differs."""
        return min(max(LEAST, self._sum(_names(scenario))), 1 - LEAST)

    def _draw(self, scenario: Scenario, rng: random.Random) -> float:
        """Draw a chance from the posterior, which narrows with each play of the scenario."""
        chance, known = self.chance(scenario), PRIOR + self._left(_names(scenario)[-1])[1]
        return rng.betavariate(chance * known, (1 - chance) * known)

    def _sum(self, names: list[str]) -> float:
        chance = 0.5
        for name in names:
            more, played = self._left(name)
            chance += more / (played + PRIOR)
        return chance

    def _count(self, name: str, more: float) -> None:
        counted, played = self._left(name)
        self._counts[name] = [counted + more, played + 1, self._batch]

    def _left(self, name: str) -> tuple[float, float]:
        """Return the counts under a name, decayed to the present batch."""
        more, played, batch = self._counts.get(name, NONE)
        left = 0.5 ** ((self._batch - batch) / (HALF_LIFE_OF_ALL if name == ALL else HALF_LIFE))
        return more * left, played * left

    def state(self) -> dict[str, Any]:
        """Return the counts without a copy, because they are large. The caller copies if needed."""
        return {"batch": self._batch, "counts": self._counts}

    def load(self, state: dict[str, Any]) -> None:
        """Restore the counts."""
        self._batch, self._counts = state["batch"], state["counts"]


def _is_free(place: int) -> bool:
    """Return whether a place in the stream of scenarios is explored, without estimates."""
    return place % EXPLORE_EVERY == EXPLORE_EVERY - 1


def _names(scenario: Scenario) -> list[str]:
    """Return the names that a scenario is counted under, the most general first."""
    tags = [f"{tag}={value}" for tag, value in scenario.tags.items()]
    both = [", ".join(tags)] if len(tags) > 1 else []
    # The names are written into checkpoints, so keys are masked.
    return [ALL, *map(mask_keys, (*tags, *both, f"scenario {scenario.id}"))]
