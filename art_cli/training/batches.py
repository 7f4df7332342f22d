"""Rollout batches in their order, begun up to `train.max_staleness` updates early.

Batch n is what update n learns from. It may begin once the policy has version n - max_staleness: at
0 that is after the update before, and nothing is ever stale; at 1 the rollouts of two batches go on
at once, while the policy is updated too (AReaL, 2505.24298). A trajectory that is on its way when
new weights arrive goes on with them: each turn says which version sampled it, and the ratio is
taken against the log-probabilities that it was really sampled with.
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

MAX_REFILLS = 3  # rounds of further scenarios in one batch

# Scenarios, and the name of the moment that their seeds come from, to their scored groups in order
# and when the last rollout ended.
RollOut = Callable[[list[Scenario], str], Awaitable[tuple[list[TrajectoryGroup], float]]]


@dataclass(slots=True, kw_only=True)
class Batch:
    """The scored groups that one update learns from."""

    groups: list[TrajectoryGroup]
    first: int  # scenarios that were taken before its own
    cursor: int  # and with them
    began: float  # by the monotonic clock
    rolled: float  # when the last rollout ended


class Batches:
    """Begins batches as early as they may, and hands them out in order."""

    def __init__(self, model: TrainableModel, sampler: Sampler, roll_out: RollOut) -> None:
        """Go on where the model's progress says. Raises UsageError where that cannot be."""
        self._model = model
        self._sampler = sampler
        self._roll_out = roll_out
        self._begun = model.step
        self._cursor = model.parts.progress.cursor
        self._waiting: deque[asyncio.Task[Batch]] = deque()
        self._taken: deque[list[Scenario]] = deque()  # of those that wait
        self._again: deque[list[Scenario]] = deque()  # that had been taken, before a stop
        if kept := model.parts.progress.curriculum:
            sampler.load(kept["state"])
            self._again.extend(_found(sampler.scenarios, ids) for ids in kept["taken"])

    def next(self) -> asyncio.Task[Batch]:
        """Return the batch of the next update, which raises what rolling it out raises."""
        self._begin()
        self._taken.popleft()
        return self._waiting.popleft()

    def settle(self, batch: Batch) -> dict[str, float]:
        """Let the sampler know how a batch went that has been learned from; return its numbers.

        Begin what may run ahead of all that comes between two updates.
        """
        # In self-play each scenario gives a group for every seat, that of its own seat first.
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
        """Give up what is on its way; a later run begins it anew."""
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
        """Roll out batch `number`, whose scenarios were taken after `first` others.

        With `train.dynamic_sampling`, add groups for those without a gradient, in rounds.
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
        if cfg.dynamic_sampling:  # it runs nothing ahead: the next batch begins behind this one
            self._cursor = cursor
        return Batch(groups=groups, first=first, cursor=cursor, began=began, rolled=rolled)


def _found(scenarios: list[Scenario], ids: list[str]) -> list[Scenario]:
    """Return the scenarios of these ids. Raises UsageError where one is gone."""
    by_id = {s.id: s for s in scenarios}
    if missing := [id for id in ids if id not in by_id]:
        raise UsageError(
            f"the checkpoint was about to play the scenario {missing[0]!r}, which the env does not "
            "have any more; put its data back, or begin anew: --overwrite"
        )
    return [by_id[id] for id in ids]
