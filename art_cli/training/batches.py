"""Rollout batches in their order, begun up to `train.max_staleness` updates early.

Batch n is what update n learns from. It may begin once the policy has version n - max_staleness: at
0 that is after the update before, and nothing is ever stale; at 1 the rollouts of two batches go on
at once, while the policy is updated too (AReaL, 2505.24298). A trajectory that is on its way when
new weights arrive goes on with them: each turn says which version sampled it, and the ratio is
taken against the log-probabilities that it was really sampled with.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from art_cli.envs.base import seed_of
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.model import TrainableModel
from art_cli.types import Scenario, TrajectoryGroup

MAX_REFILLS = 3  # rounds of further scenarios in one batch

# Scenarios, and the name of the moment that their seeds come from, to their scored groups in order
# and when the last rollout ended.
RollOut = Callable[[list[Scenario], str], Awaitable[tuple[list[TrajectoryGroup], float]]]


@dataclass(slots=True)
class Stream:
    """All train scenarios in a new random order each epoch; a number says where one is in it."""

    scenarios: list[Scenario]
    seed: int
    _order: tuple[int, list[Scenario]] = field(default=(-1, []))

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the `num` scenarios from `cursor` on."""
        return [self._at(i) for i in range(cursor, cursor + num)]

    def _at(self, i: int) -> Scenario:
        epoch, place = divmod(i, len(self.scenarios))
        if self._order[0] != epoch:
            rng = random.Random(seed_of(self.seed, "epoch", epoch))
            self._order = (epoch, rng.sample(self.scenarios, len(self.scenarios)))
        return self._order[1][place]


@dataclass(slots=True, kw_only=True)
class Batch:
    """The scored groups that one update learns from."""

    groups: list[TrajectoryGroup]
    cursor: int  # in the stream, behind its scenarios
    began: float  # by the monotonic clock
    rolled: float  # when the last rollout ended


class Batches:
    """Begins batches as early as they may, and hands them out in order."""

    def __init__(self, model: TrainableModel, stream: Stream, roll_out: RollOut) -> None:
        self._model = model
        self._stream = stream
        self._roll_out = roll_out
        self._begun = model.step
        self._cursor = model.parts.progress.cursor
        self._waiting: deque[asyncio.Task[Batch]] = deque()

    def next(self) -> asyncio.Task[Batch]:
        """Return the batch of the next update, which raises what rolling it out raises."""
        self._begin()
        return self._waiting.popleft()

    def begin_ahead(self) -> None:
        """Begin what may run ahead of all that comes between two updates."""
        if self._model.experiment.train.max_staleness:
            self._begin()

    async def close(self) -> None:
        """Give up what is on its way; a later run begins it anew."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _begin(self) -> None:
        cfg = self._model.experiment.train
        while self._begun <= min(self._model.step + cfg.max_staleness, cfg.steps - 1):
            self._waiting.append(asyncio.ensure_future(self._gather(self._begun, self._cursor)))
            self._begun += 1
            self._cursor += cfg.scenarios_per_step

    async def _gather(self, number: int, cursor: int) -> Batch:
        """Roll out batch `number` with the scenarios from `cursor` on.

        With `train.refill`, add groups for those without a gradient, in rounds.
        """
        cfg = self._model.experiment.train
        began = rolled = time.monotonic()
        groups: list[TrajectoryGroup] = []
        missing = cfg.scenarios_per_step
        for _ in range(1 + (MAX_REFILLS if cfg.refill else 0)):
            scenarios = self._stream.take(cursor, missing)
            cursor += missing
            more, rolled = await self._roll_out(scenarios, f"{number}+{cursor}")
            groups += more
            missing = cfg.scenarios_per_step - sum(has_gradient(g.rewards) for g in groups)
            if missing <= 0:
                break
        if cfg.refill:  # it runs nothing ahead: the next batch begins behind this one
            self._cursor = cursor
        return Batch(groups=groups, cursor=cursor, began=began, rolled=rolled)
