"""Scenarios whose groups will most likely differ: only these have a gradient.

How often groups differ is known of all scenarios together, from those that are explored. Of each
level and kind, and of each scenario, it is counted how much more often its groups differ than was
thought: so a scenario that was never played is thought of as its kind is, and a new kind as all
are. What is known of all fades fast, since the policy moves; differences from it stay longer.

Of `CANDIDATES` scenarios a place, in the order of an epoch, one is taken: of each a chance is drawn
from what it may be, and the highest are played (Thompson sampling), so that near ties are mixed.
Every `EXPLORE_EVERY`-th place is explored: it goes by no estimate, so that each scenario is played
once in `EXPLORE_EVERY` epochs.

After prioritized level replay (2010.03934), with a posterior as in MoPPS (2507.04632) of what DAPO
(2503.14476) filters by once it has been played.
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

CANDIDATES = 4  # that are looked at for each that is taken
EXPLORE_EVERY = 4
HALF_LIFE, HALF_LIFE_OF_ALL = 40, 5  # batches, in which counts fade to their half
PRIOR = 4.0  # groups that what is borrowed counts for
LEAST = 0.02  # chance of any scenario to differ, and not to: none is given up

Counts = list[float]  # groups more than expected that differed, that were played, as of a batch
NONE: Counts = [0.0, 0.0, 0.0]
ALL = "all"


class Signal(Sampler):
    """Chooses by the chance that a scenario's group will differ; see the module."""

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        super().__init__(scenarios, seed)
        self._explored = Uniform(scenarios, seed)
        self._candidates = Uniform(scenarios, seed_of(seed, "candidates"))
        self._batch = 0
        self._counts: dict[str, Counts] = {}

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the best of the next candidates, and explored ones between."""
        places = range(cursor, cursor + num)
        explored = {i: self._explored.take(i // EXPLORE_EVERY, 1)[0] for i in places if _is_free(i)}
        taken = {s.id for s in explored.values()}
        found = self._candidates.take(cursor * CANDIDATES, num * CANDIDATES)
        pool = {s.id: s for s in found if s.id not in taken} or {s.id: s for s in found}
        rng = random.Random(seed_of(self.seed, "chosen", cursor))
        drawn = {id: self._draw(s, rng) for id, s in pool.items()}
        ranked = sorted(pool.values(), key=lambda s: drawn[s.id], reverse=True)
        chosen = iter(ranked * num)  # again from the first where there are too few
        return [explored[i] if i in explored else next(chosen) for i in places]

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> dict[str, float]:
        """Count the groups, once it is known how well they were foreseen."""
        played = [(place, g) for place, g in enumerate(groups, start=cursor) if g.rewards]
        scenarios = [g.trajectories[0].scenario for _, g in played]
        differs = [has_gradient(g.rewards) for _, g in played]
        expected = [self.chance(s) for s in scenarios]
        free = [i for i, (place, _) in enumerate(played) if _is_free(place)]
        chosen = [i for i, (place, _) in enumerate(played) if not _is_free(place)]
        self._batch += 1
        names = [_names(s) for s in scenarios]
        for depth in range(max(map(len, names), default=0)):
            # Of all together, those that were chosen would say what is chosen.
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
        """Return the chance that a group of the scenario will differ."""
        return min(max(LEAST, self._sum(_names(scenario))), 1 - LEAST)

    def _draw(self, scenario: Scenario, rng: random.Random) -> float:
        """Return what the chance may be, by how much is known of the scenario itself."""
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
        """Return what was counted under a name, faded until now."""
        more, played, batch = self._counts.get(name, NONE)
        left = 0.5 ** ((self._batch - batch) / (HALF_LIFE_OF_ALL if name == ALL else HALF_LIFE))
        return more * left, played * left

    def state(self) -> dict[str, Any]:
        """Return the counts themselves: they are many, and copied only where they are written."""
        return {"batch": self._batch, "counts": self._counts}

    def load(self, state: dict[str, Any]) -> None:
        """Take back the counts."""
        self._batch, self._counts = state["batch"], state["counts"]


def _is_free(place: int) -> bool:
    """Return whether a place goes to whichever scenario is next."""
    return place % EXPLORE_EVERY == EXPLORE_EVERY - 1


def _names(scenario: Scenario) -> list[str]:
    """Return what a scenario is counted under, the widest first."""
    tags = [f"{tag}={value}" for tag, value in scenario.tags.items()]
    both = [", ".join(tags)] if len(tags) > 1 else []
    # They are written with a checkpoint.
    return [ALL, *map(mask_keys, (*tags, *both, f"scenario {scenario.id}"))]
