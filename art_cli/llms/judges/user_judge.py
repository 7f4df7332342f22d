"""A judge of the user's own, named by `judge.use: FILE.py:NAME`, with errors by source line."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from art_cli.config.sections.judge import JudgeConfig
from art_cli.envs.user_code import blaming, class_named, make_plugin
from art_cli.errors import JudgeError, UsageError
from art_cli.llms.base import Usage
from art_cli.llms.judges.base import Judge, Score, Transcript, Verdict

KEY = "judge.use"


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
        deadline = asyncio.timeout(self._timeout)
        try:
            with blaming(KEY, self._name, type(self._judge).judge):
                async with deadline:
                    verdict: Any = await self._judge.judge(transcripts)
        except UsageError as e:
            if not deadline.expired():
                raise
            raise JudgeError(
                f"{self._name} gave no scores within {self._timeout:g} s (judge.timeout)"
            ) from e
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
