"""The interface of trackers, and a fan-out that prevents any of them from stopping a run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from art_cli.keys import mask_keys


class Tracker(Protocol):
    """A destination of metrics."""

    def log(self, metrics: dict[str, float]) -> None:
        """Record one set of metrics; its `training_step` is the x axis."""
        ...

    def finish(self, state: str) -> None:
        """Close. `state` is done, failed or interrupted."""
        ...


class Trackers:
    """Several trackers as one. The first is authoritative; the others mirror it.

    A tracker that raises is reported once, through `say`, and switched off. The run continues.
    """

    def __init__(self, trackers: list[Tracker], say: Callable[[str], None]) -> None:
        self._trackers = list(trackers)
        self._say = say

    def log(self, metrics: dict[str, float]) -> None:
        """Pass a copy of `metrics` to each tracker, with masked keys in names. Never raises."""
        named = {_masked_name(name): value for name, value in metrics.items()}
        self._each(lambda tracker: tracker.log(dict(named)))

    def finish(self, state: str) -> None:
        """Close each tracker. A second call does nothing. Never raises."""
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
    """Return a metric's name with masked keys, in characters that every tracker accepts."""
    masked = mask_keys(name)
    return name if masked == name else re.sub(r"[^\w./ -]+", "_", masked)
