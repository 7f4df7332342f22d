"""A judge of the user's own, named by `judge.use: FILE.py:NAME`, with errors by source line."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from art_cli.config.sections.judge import JudgeConfig
from art_cli.envs.user_code import blaming, class_named, in_time, make_plugin
from art_cli.errors import JudgeError, UsageError
from art_cli.llms.base import Usage
from art_cli.llms.judges.base import Judge, Score, Transcript, Verdict

KEY = "judge.use"
T = TypeVar("T")


def check_judge_class(name: str) -> None:
    """Raise UsageError where `judge.use` names no class that implements Judge."""
    class_named(KEY, name, Judge, ("cfg",))


class UserJudge:
    """Wraps the user's own judge and checks its results; implements `Judge`."""

    def __init__(self, cfg: JudgeConfig) -> None:
        """Raises UsageError where the class cannot be made, or is no Judge."""
        self._name, self._timeout = cfg.use, cfg.timeout
        self._judge: Judge = make_plugin(KEY, cfg.use, Judge, cfg=cfg)

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        """See Judge. Raises UsageError where the user's code fails or gives no fitting Verdict,
        JudgeError where it takes longer than `judge.timeout`."""
        with self._telling("judge"):
            verdict: Any = await self._in_time("judge", self._judge.judge(transcripts))
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
        with self._telling("check_room"):
            self._judge.check_room(opening, tools)

    async def ping(self) -> None:
        """See `Judge`."""
        with self._telling("ping"):
            await self._in_time("ping", self._judge.ping())

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
        with self._telling("close"):
            await self._in_time("close", self._judge.close())

    def _telling(self, method: str) -> Any:
        return blaming(KEY, self._name, getattr(type(self._judge), method))

    async def _in_time(self, method: str, call: Awaitable[T]) -> T:
        what = f"{KEY}: {self._name}: {method}()"
        return await in_time(what, self._timeout, call, JudgeError, setting="judge.timeout")
