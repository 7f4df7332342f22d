"""Sampler that plays every scenario equally often."""

from __future__ import annotations

import random

from art_cli.envs.base import seed_of
from art_cli.training.curriculum.base import Sampler
from art_cli.types import Scenario


class Uniform(Sampler):
    """Plays all scenarios in a new random order each epoch. The cursor is the position in it."""

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        super().__init__(scenarios, seed)
        self._order: tuple[int, list[Scenario]] = (-1, [])

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the `num` scenarios at positions `cursor` and up."""
        return [self._at(i) for i in range(cursor, cursor + num)]

    def _at(self, i: int) -> Scenario:
        epoch, place = divmod(i, len(self.scenarios))
        if self._order[0] != epoch:
            rng = random.Random(seed_of(self.seed, "epoch", epoch))
            self._order = (epoch, rng.sample(self.scenarios, len(self.scenarios)))
        return self._order[1][place]
