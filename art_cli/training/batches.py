"""Rollout batches in order, started up to `train.max_staleness` updates early.

Update n trains on batch n, which may start once the policy has version n - max_staleness. With 0,
it starts after the previous update and nothing is stale. With 1, two batches are rolled out at
once, also during an update (AReaL, 2505.24298). An episode in progress continues with new weights
when they arrive. Each turn records the version that sampled it, and the ratio uses the
log-probabilities of the actual sampling.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from art_cli.errors import UsageError
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.curriculum.base import Sampler
from art_cli.training.model import TrainableModel
from art_cli.types import Scenario, TrajectoryGroup

MAX_REFILLS = 3  # rounds of additional scenarios in one batch

# (scenarios, moment that seeds derive from) -> (scored groups in order, time of the last rollout)
RollOut = Callable[[list[Scenario], str], Awaitable[tuple[list[TrajectoryGroup], float]]]


@dataclass(slots=True, kw_only=True)
class Batch:
    """The scored groups that one update trains on."""

    groups: list[TrajectoryGroup]
    first: int  # number of scenarios taken before this batch
    cursor: int  # number of scenarios taken after it
    began: float  # seconds, monotonic clock
    rolled: float  # when the last rollout ended, same clock


class Batches:
    """Starts batches as early as `train.max_staleness` allows, and returns them in order."""

    def __init__(self, model: TrainableModel, sampler: Sampler, roll_out: RollOut) -> None:
        """Continue from the model's progress. Raises UsageError if its scenarios are gone."""
        self._model = model
        self._sampler = sampler
        self._roll_out = roll_out
        self._begun = model.step
        self._cursor = model.parts.progress.cursor
        self._waiting: deque[asyncio.Task[Batch]] = deque()
        self._taken: deque[list[Scenario]] = deque()  # of the batches in `_waiting`
        self._again: deque[list[Scenario]] = deque()  # taken before the run was interrupted
        if kept := model.parts.progress.curriculum:
            sampler.load(kept["state"])
            self._again.extend(_found(sampler.scenarios, ids) for ids in kept["taken"])

    def next(self) -> asyncio.Task[Batch]:
        """Return the task of the next update's batch. It raises the errors of its rollouts."""
        self._begin()
        self._taken.popleft()
        return self._waiting.popleft()

    def settle(self, batch: Batch) -> dict[str, float]:
        """Tell the sampler the results of a batch after its update. Return the sampler's metrics.

        Starts batches that may run ahead, so that they overlap with the work between two updates.
        """
        # In self-play each scenario yields one group per seat, the scenario's own seat first.
        seats = len(batch.groups) // (batch.cursor - batch.first)
        numbers = self._sampler.note(batch.first, batch.groups[::seats])
        if self._model.experiment.train.max_staleness:
            self._begin()
        state = self._sampler.state()
        taken = [[s.id for s in scenarios] for scenarios in self._taken]
        kept = None if state is None else {"state": state, "taken": taken}
        self._model.note(cursor=batch.cursor, curriculum=kept)
        return {f"data/curriculum_{name}": value for name, value in numbers.items()}

    async def close(self) -> None:
        """Cancel the batches in progress. A resumed run starts them again."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def _begin(self) -> None:
        cfg = self._model.experiment.train
        while self._begun <= min(self._model.step + cfg.max_staleness, cfg.steps - 1):
            num = cfg.scenarios_per_step
            taken = self._again.popleft() if self._again else self._sampler.take(self._cursor, num)
            self._taken.append(taken)
            self._waiting.append(
                asyncio.ensure_future(self._gather(self._begun, self._cursor, taken))
            )
            self._begun += 1
            self._cursor += num

    async def _gather(self, number: int, first: int, scenarios: list[Scenario]) -> Batch:
        """Roll out batch `number`. `first` scenarios were taken before these.

        With `train.dynamic_sampling`, roll out more scenarios in rounds until enough groups have a
        gradient.
        """
        cfg = self._model.experiment.train
        began = rolled = time.monotonic()
        groups: list[TrajectoryGroup] = []
        cursor = first
        for _ in range(1 + (MAX_REFILLS if cfg.dynamic_sampling else 0)):
            cursor += len(scenarios)
            more, rolled = await self._roll_out(scenarios, f"{number}+{cursor}")
            groups += more
            missing = cfg.scenarios_per_step - sum(has_gradient(g.rewards) for g in groups)
            if missing <= 0 or not cfg.dynamic_sampling:
                break
            scenarios = self._sampler.take(cursor, missing)
        if cfg.dynamic_sampling:  # nothing runs ahead, so the next batch starts here
            self._cursor = cursor
        return Batch(groups=groups, first=first, cursor=cursor, began=began, rolled=rolled)


def _found(scenarios: list[Scenario], ids: list[str]) -> list[Scenario]:
    """Return the scenarios with these ids. Raises UsageError if one no longer exists."""
    by_id = {s.id: s for s in scenarios}
    if missing := [id for id in ids if id not in by_id]:
        raise UsageError(
            f"the checkpoint has a pending batch with the scenario {missing[0]!r}, which the "
            "env does not have any more; restore its data, or start over: --overwrite"
        )
    return [by_id[id] for id in ids]
