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
from dataclasses import dataclass, field

from art_cli.envs.base import seed_of
from art_cli.system.progress import Report
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.gather import gather_trajectory_groups
from art_cli.training.model import TrainableModel
from art_cli.types import Scenario, TrajectoryGroup

MAX_REFILLS = 3  # rounds of further scenarios in one batch


@dataclass(slots=True)
class Stream:
    """All train scenarios in a new random order each epoch; a number says where one is in it."""

    scenarios: list[Scenario]
    seed: int
    _order: tuple[int, list[Scenario]] = field(default=(-1, []))

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """The next `num` scenarios from `cursor` on."""
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

    def __init__(self, model: TrainableModel, stream: Stream, report: Report) -> None:
        self._model = model
        self._stream = stream
        self._report = report
        self._begun = model.step
        self._cursor = model.parts.progress.cursor
        self._waiting: deque[asyncio.Task[Batch]] = deque()

    async def next(self) -> Batch:
        """The batch of the next update. Raises what its rollouts or its scoring raised."""
        self._begin()
        batch = await self._waiting.popleft()
        if not self._waiting:
            self._cursor = batch.cursor
        return batch

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
            self._cursor += cfg.scenarios_per_step  # with `refill`, see below: nothing is ahead

    async def _gather(self, number: int, cursor: int) -> Batch:
        """With `refill`, further groups for those without a gradient."""
        cfg = self._model.experiment.train
        clock = _RolloutClock(self._report)
        groups: list[TrajectoryGroup] = []
        missing = cfg.scenarios_per_step
        for _ in range(1 + (MAX_REFILLS if cfg.refill else 0)):
            scenarios = self._stream.take(cursor, missing)
            cursor += missing
            groups += await gather_trajectory_groups(
                self._model,
                scenarios,
                group_size=cfg.group_size,
                moment=f"{number}+{cursor}",
                after_each=self._model.parts.scorer,
                report=clock,
            )
            missing = cfg.scenarios_per_step - sum(has_gradient(g.rewards) for g in groups)
            if missing <= 0:
                break
        return Batch(groups=groups, cursor=cursor, began=clock.began, rolled=clock.rolled)


class _RolloutClock:
    """A Report that notes when the last rollout ended; what comes after it is scoring."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.began = self.rolled = time.monotonic()

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        if text == "rollout":
            self.rolled = time.monotonic()
        self._report(text, done, total)
