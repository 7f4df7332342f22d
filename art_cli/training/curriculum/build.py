"""Construction of the sampler that `train.curriculum` names, with checks of custom samplers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from typing import Any

from art_cli.envs.user_code import blaming, named, place_of
from art_cli.errors import UsageError
from art_cli.training.curriculum.base import Sampler
from art_cli.training.curriculum.signal import Signal
from art_cli.training.curriculum.uniform import Uniform
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

KEY = "train.curriculum"
SAMPLERS: dict[str, type[Sampler]] = {"uniform": Uniform, "signal": Signal}


@lru_cache  # edits to the file during a run have no effect
def sampler_named(name: str) -> type[Sampler]:
    """Return the class that `train.curriculum` names. Raises UsageError."""
    found: Any = named(KEY, name, SAMPLERS)
    if not (isinstance(found, type) and issubclass(found, Sampler)):
        raise UsageError(f"{KEY}: {name} is no class that extends art_cli.Sampler")
    return found


def make_sampler(name: str, scenarios: list[Scenario], seed: int) -> Sampler:
    """Return the sampler of these scenarios. Raises UsageError.

    A custom sampler also raises UsageError later, if it fails or returns an invalid value.
    """
    found = sampler_named(name)
    return found(scenarios, seed) if name in SAMPLERS else UserSampler(name, scenarios, seed)


def try_sampler(name: str, scenarios: list[Scenario], seed: int, num: int) -> None:
    """Check that a sampler can choose two batches of `num`, also when restored between them.

    Raises UsageError if it fails, or chooses other scenarios after being restored.
    """
    first, again = (make_sampler(name, scenarios, seed) for _ in range(2))
    taken = first.take(0, num)
    groups = [
        TrajectoryGroup([Trajectory(scenario=s, reward=float(i % 2 * j)) for j in range(2)])
        for i, s in enumerate(taken)
    ]
    first.note(0, groups)
    if (state := first.state()) is not None:
        again.load(json.loads(json.dumps(state)))
    if again.take(num, num) != first.take(num, num):
        place = place_of(sampler_named(name).take)
        raise UsageError(
            f"{KEY}: {name} ({place}) chooses others after load(state()), so a run could not "
            "resume exactly; let state() return all that note() keeps, and draw from "
            "random.Random(art_cli.seed_of(self.seed, cursor))"
        )


class UserSampler(Sampler):
    """Wraps a custom sampler. Its errors are reported with the config key and the source line."""

    def __init__(self, name: str, scenarios: list[Scenario], seed: int) -> None:
        super().__init__(scenarios, seed)
        self._name = name
        self._ids = {s.id: s for s in scenarios}
        made = sampler_named(name)
        with blaming(KEY, name, made.__init__):
            self._own = made(list(scenarios), seed)

    def take(self, cursor: int, num: int) -> list[Scenario]:
        """Return `num` different scenarios of the train split. Raises UsageError."""
        with blaming(KEY, self._name, self._own.take):
            given = self._own.take(cursor, num)
        where = f"{KEY}: {self._name} ({place_of(self._own.take)}) returned"
        if not isinstance(given, list | tuple):
            raise UsageError(f"{where} {type(given).__name__}, expected a list of {num} scenarios")
        if len(given) != num:
            raise UsageError(f"{where} {len(given)} scenarios, expected {num}")
        seen: set[str] = set()
        for each in given:
            if not isinstance(each, Scenario) or self._ids.get(each.id) != each:
                said = each.id if isinstance(each, Scenario) else each
                raise UsageError(f"{where} {said!r:.80}, which is no scenario of the split train")
            if each.id in seen and num <= len(self._ids):
                raise UsageError(f"{where} {each.id!r} twice in one batch; expected each once")
            seen.add(each.id)
        return list(given)

    def note(self, cursor: int, groups: list[TrajectoryGroup]) -> Mapping[str, float]:
        """Return finite numbers by name. Raises UsageError."""
        with blaming(KEY, self._name, self._own.note):
            given: Any = self._own.note(cursor, groups)
        if given is None:
            return {}
        where = f"{KEY}: {self._name} ({place_of(self._own.note)}) returned"
        if not isinstance(given, Mapping):
            raise UsageError(f"{where} {type(given).__name__}, expected numbers by name")
        for name, value in given.items():
            if not isinstance(value, Real) or not math.isfinite(value):
                raise UsageError(f"{where} {value!r:.80} for {name!r}; expected a finite number")
        return {str(name): float(value) for name, value in given.items()}

    def state(self) -> Any:
        """Return the state of the custom sampler, as JSON values. Raises UsageError."""
        with blaming(KEY, self._name, self._own.state):
            given = self._own.state()
        try:
            json.dumps(given, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as e:
            place = place_of(self._own.state)
            raise UsageError(
                f"{KEY}: {self._name} ({place}) returned what a checkpoint cannot hold as JSON: {e}"
            ) from None
        return given

    def load(self, state: Any) -> None:
        """Restore the custom sampler's state. Raises UsageError."""
        with blaming(KEY, self._name, self._own.load):
            self._own.load(state)
