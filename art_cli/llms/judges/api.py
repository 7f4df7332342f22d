"""RULER as a Python API, with the names and arguments of OpenPipe's ART."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

from art_cli.config.sections.judge import JudgeConfig
from art_cli.errors import ArtError
from art_cli.llms.judges.base import Judge, Transcript
from art_cli.llms.judges.build import make_judge
from art_cli.llms.judges.scorer import Scorer
from art_cli.terminal.text import say
from art_cli.types import RewardParts, TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryScore:
    """The judge's score of one message list."""

    trajectory_id: str  # index in `message_lists`
    explanation: str
    score: float  # in [0, 1], relative to the others


async def ruler(
    message_lists: list[list[Any]],
    judge_model: str = "openai/o3",
    extra_litellm_params: dict[str, Any] | None = None,
    rubric: str | None = None,
    tools: list[Any] | None = None,
    *,
    debug: bool = False,
) -> list[TrajectoryScore]:
    """Score conversations against each other, and return the scores in the same order.

    `judge_model` is any name that litellm knows. `extra_litellm_params` are passed to litellm
    (api_base, temperature, ...). `tools` are JSON schemas of the available tools. `debug` prints
    the judge's scores. Raises JudgeError, PreflightError.
    """
    judge = await _judge(judge_model, extra_litellm_params, rubric)
    try:
        transcripts = [Transcript(messages=m, tools=tools or []) for m in message_lists]
        verdict = await judge.judge(transcripts)
    finally:
        await judge.close()
    scores = [
        TrajectoryScore(trajectory_id=str(n), explanation=s.explanation, score=s.score)
        for n, s in enumerate(verdict.scores)
    ]
    if debug:
        _print(scores)
    return scores


async def ruler_score_group(
    group: TrajectoryGroup,
    judge_model: str = "openai/o3",
    extra_litellm_params: dict[str, Any] | None = None,
    rubric: str | None = None,
    *,
    swallow_exceptions: bool = False,
    debug: bool = False,
) -> TrajectoryGroup | None:
    """Return a copy of the group with the judge's scores as rewards.

    `reward_parts` hold the original reward (`env`), the judge's score and its explanation. Raises
    JudgeError, PreflightError. With `swallow_exceptions`, prints the error and returns None
    instead.
    """
    copy = TrajectoryGroup(
        [replace(t, reward_parts=RewardParts(env=t.reward)) for t in group.trajectories]
    )
    try:
        judge = await _judge(judge_model, extra_litellm_params, rubric)
        try:
            await Scorer(judge, None, on_failure="stop")(copy)
        finally:
            await judge.close()
    except ArtError as e:
        if not swallow_exceptions:
            raise
        say(f"RULER: the group is left out: {e}", file=sys.stderr)
        return None
    if debug:
        scored = [t for t in copy.trajectories if t.reward is not None]
        _print(
            TrajectoryScore(
                trajectory_id=str(n), explanation=t.reward_parts.explanation, score=t.reward or 0.0
            )
            for n, t in enumerate(scored)
        )
    return copy


async def _judge(model: str, params: dict[str, Any] | None, rubric: str | None) -> Judge:
    params = dict(params or {})
    base = params.pop("api_base", None)
    return await make_judge(
        JudgeConfig(model=model, api_base=base, params=params, rubric=rubric), seed=0
    )


def _print(scores: Any) -> None:
    for s in scores:
        say(f"RULER {s.trajectory_id}: {s.score:.3f}  {s.explanation}")
