"""A tracker of the user's own, named by `track.custom.NAME.use`. Its mistakes are told by place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from art_cli.config.sections.track import UserTrackerConfig
from art_cli.envs.user_code import class_named, make_plugin, settings_of
from art_cli.errors import UsageError, blame
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.sink import Sink

MADE_OF = ("settings", "run")


def check_tracker_class(name: str, cfg: UserTrackerConfig) -> None:
    """Raise UsageError where `use` names no class that implements Sink, or `args` do not fit it."""
    section = f"track.custom.{name}"
    settings_of(section, class_named(f"{section}.use", cfg.use, Sink, MADE_OF), cfg.args)


class UserSink:
    """Implements Sink: hands rows to the user's own, each as a dict that it may change."""

    def __init__(self, name: str, cfg: UserTrackerConfig, run: RunDir) -> None:
        """Raises UsageError where the class cannot be made."""
        key = f"track.custom.{name}.use"
        found = class_named(key, cfg.use, Sink, MADE_OF)
        settings = settings_of(f"track.custom.{name}", found, cfg.args)
        self._sink: Sink = make_plugin(key, cfg.use, Sink, settings=settings, run=run)

    def take(self, row: Mapping[str, Any]) -> None:
        """See Sink."""
        with self._placing():
            self._sink.take(dict(row))

    def close(self, state: str) -> None:
        """See Sink."""
        with self._placing():
            self._sink.close(state)

    @contextmanager
    def _placing(self) -> Iterator[None]:
        """Say in what the user's code raises where that was, on the one line that is told."""
        try:
            yield
        except (Exception, SystemExit) as e:
            raise UsageError(blame(e, type(self._sink))) from e
