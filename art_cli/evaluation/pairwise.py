"""Rewards by pairwise comparison, for an env without a score of its own.

Judged scores are not comparable across scenarios, but wins are. A judge compares each attempt with
the baseline's at the same scenario and trial: 1 for a win, 0.5 for a tie, 0 for a loss. The judge
caches its answers, so repeating the comparison costs nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from art_cli.errors import EnvError, JudgeError
from art_cli.evaluation.attempts import Attempt
from art_cli.evaluation.play import Record
from art_cli.keys import mask_keys_in
from art_cli.llms.judges.base import Judge, Transcript
from art_cli.rollout.groups import why_none
from art_cli.system.progress import Report


def unscored(records: list[Record]) -> bool:
    """Return whether an attempt still needs a judge."""
    return any(a.reward is None for r in records for a in r.attempts)


async def judge_pairs(
    records: list[Record], baseline: str, judge: Judge | None, tools: list[Any], report: Report
) -> None:
    """Set missing rewards. An attempt on which the judge fails counts as failed.

    Raises EnvError if there is no judge, BudgetError.
    """
    if judge is None:
        raise EnvError(why_none([None]))
    [base] = [r for r in records if r.candidate.name == baseline]
    theirs = {a.place: a for a in base.attempts}
    total = sum(a.reward is None for r in records if r is not base for a in r.attempts)
    done = 0

    async def one(a: Attempt) -> Attempt:
        nonlocal done
        other = theirs.get(a.place)
        if a.reward is not None or other is a:
            return a if a.reward is not None else replace(a, reward=0.5)
        if other is None:
            return replace(a, error=f"{baseline} has no finished episode to compare it with")
        try:
            verdict = await judge.judge([_transcript(other, tools), _transcript(a, tools)])
        except JudgeError as e:
            return replace(a, error=f"the judge failed: {e}")
        finally:
            done += 1
            report("judging", done, total)
        then, now = (s.score for s in verdict.scores)
        return replace(a, reward=0.5 if now == then else float(now > then))

    for r in records:
        judged = await asyncio.gather(*(one(a) for a in r.attempts))
        r.attempts = [a for a in judged if a.reward is not None]
        r.failed += [a for a in judged if a.reward is None]


def _transcript(a: Attempt, tools: list[Any]) -> Transcript:
    return Transcript(messages=a.messages, tools=mask_keys_in(tools), context=a.judge_context)
