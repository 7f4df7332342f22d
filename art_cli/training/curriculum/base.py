"""The interface of those who choose the scenarios, the built-in ones and those of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from art_cli.types import Scenario, TrajectoryGroup


class Sampler:
    """Chooses the scenarios of each batch; what `train.curriculum` names.

    What `take` returns may depend on its arguments and on what `note` has been told, on nothing
    else: then a run that was stopped goes on as if it had not been. Where `note` keeps anything,
    `state` gives it and `load` takes it back.
    """

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        """`scenarios` are all of the split train, `seed` is the experiment's."""
        self.scenarios = scenarios
        self.seed = seed

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return `num` scenarios, where `cursor` were taken before. Change nothing."""
        raise NotImplementedError(f"{type(self).__name__} must override take()")

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> Mapping[str, float]:
        """Learn from the scored groups of the scenarios that were taken from `cursor` on.

        They are in that order, one a scenario: in a game, that of the seat which it names.
        Return numbers to log, each as `data/curriculum_<name>`. With `train.max_staleness` that
        many further batches have been taken meanwhile.
        """
        return {}

    def state(self) -> Any:
        """Return what `note` has learned, as JSON has it; it goes into each checkpoint.

        None: nothing, `take` goes by its arguments alone.
        """
        return None

    def load(self, state: Any) -> None:
        """Take back what `state` gave."""
