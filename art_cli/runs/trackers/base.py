"""The interface of trackers, and the fan-out that keeps any one of them from stopping a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from art_cli.keys import mask_keys


class Tracker(Protocol):
    """A place where metrics go."""

    def log(self, metrics: dict[str, float]) -> None:
        """Take one set of metrics; `training_step` is among them and is the x axis."""
        ...

    def finish(self, state: str) -> None:
        """Close. `state` is done, failed or interrupted."""
        ...


class Trackers:
    """Several trackers as one. Order matters: the first is the truth, the others mirror it.

    A tracker that raises is reported once, through `say`, and switched off; the run goes on.
    """

    def __init__(self, trackers: list[Tracker], say: Callable[[str], None]) -> None:
        self._trackers = list(trackers)
        self._say = say

    def log(self, metrics: dict[str, float]) -> None:
        """Hand a copy of `metrics`, no key in their names, to each tracker. Never raises."""
        named = {_masked_name(name): value for name, value in metrics.items()}
        self._each(lambda tracker: tracker.log(dict(named)))

    def finish(self, state: str) -> None:
        """Close each tracker; a second call does nothing. Never raises."""
        self._each(lambda tracker: tracker.finish(state))
        self._trackers = []

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:
                self._trackers.remove(tracker)
                name = type(tracker).__name__
                self._say(f"{name} is switched off: {type(error).__name__}: {error}")


def _masked_name(name: str) -> str:
    """Return the name of a metric without keys, in characters that every tracker takes."""
    masked = mask_keys(name)
    return name if masked == name else re.sub(r"[^\w./ -]+", "_", masked)
