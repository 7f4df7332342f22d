"""The interface of samplers, built-in and custom ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from art_cli.types import Scenario, TrajectoryGroup


class Sampler:
    """Chooses the scenarios of each batch. `train.curriculum` names a subclass.

    The result of `take` may depend only on its arguments and on the calls of `note`. Then a resumed
    run continues exactly. If `note` stores anything, `state` must return it and `load` restore it.
    """

    def __init__(self, scenarios: list[Scenario], seed: int) -> None:
        """`scenarios` are all of the train split, `seed` is the experiment's."""
        self.scenarios = scenarios
        self.seed = seed

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return the next `num` scenarios after the first `cursor`, without changing any state."""
        raise NotImplementedError(f"{type(self).__name__} must override take()")

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> Mapping[str, float]:
        """Update from the scored groups of the scenarios that were taken from `cursor` on.

        The groups are in that order, one per scenario; in a game, that of the scenario's own seat.
        Returns numbers to log, each as `data/curriculum_<name>`. With `train.max_staleness`, that
        many further batches have been taken in the meantime.
        """
        return {}

    def state(self) -> Any:
        """Return everything learned by `note`, as JSON values, for the checkpoint.

        None means that `take` depends on its arguments only.
        """
        return None

    def load(self, state: Any) -> None:
        """Restore the state that `state` returned."""
