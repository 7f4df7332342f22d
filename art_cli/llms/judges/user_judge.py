"""A judge of the user's own, named by `judge.use: FILE.py:NAME`, with errors by source line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

from art_cli.config.sections.judge import JudgeConfig
from art_cli.envs.user_code import blaming, named
from art_cli.errors import UsageError
from art_cli.llms.base import Usage
from art_cli.llms.judges.base import Judge, Score, Transcript, Verdict

REQUIRED = ("judge", "check_room", "ping", "usage", "spent", "close")  # attributes of a Judge
KEY = "judge.use"


def own_class(name: str) -> type:
    """Return the class that `judge.use` names. Raises UsageError if there is none."""
    found = named(KEY, name, {})
    if not inspect.isclass(found):
        raise UsageError(f"{KEY}: {name} is no class; name one that implements Judge")
    return found


class UserJudge:
    """Wraps the user's own judge and checks its results; implements `Judge`."""

    def __init__(self, cfg: JudgeConfig) -> None:
        """Raises UsageError if the class cannot be constructed, or does not implement `Judge`."""
        self._name, made = cfg.use, own_class(cfg.use)
        with blaming(KEY, self._name, made.__init__):
            self._judge: Judge = made(cfg)
        if missing := [name for name in REQUIRED if not hasattr(self._judge, name)]:
            raise UsageError(f"{KEY}: {self._name} has no {', '.join(missing)}; see Judge")

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        """See `Judge`. Raises UsageError if the user's code fails or returns a bad `Verdict`."""
        with blaming(KEY, self._name, type(self._judge).judge):
            verdict: Any = await self._judge.judge(transcripts)
        scores = verdict.scores if isinstance(verdict, Verdict) else None
        if not isinstance(scores, list) or not all(isinstance(s, Score) for s in scores):
            given = type(verdict).__name__
            raise UsageError(
                f"{KEY}: {self._name}.judge() returned {given}, not a Verdict of Scores"
            )
        if len(scores) != len(transcripts) or not all(math.isfinite(s.score) for s in scores):
            raise UsageError(
                f"{KEY}: {self._name}.judge() must return one finite score for each of "
                f"{len(transcripts)} trajectories, and returned {[s.score for s in scores]}"
            )
        return verdict

    def check_room(self, opening: list[Any], tools: list[Any]) -> None:
        """See `Judge`."""
        self._judge.check_room(opening, tools)

    async def ping(self) -> None:
        """See `Judge`."""
        await self._judge.ping()

    @property
    def usage(self) -> Usage:
        """See `Judge`."""
        return self._judge.usage

    @property
    def spent(self) -> float:
        """See `Judge`."""
        return self._judge.spent

    async def close(self) -> None:
        """See `Judge`."""
        await self._judge.close()
