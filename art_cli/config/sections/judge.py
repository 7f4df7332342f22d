"""The section `judge`: an LLM that scores trajectories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from art_cli.config.plugins import Plugin
from art_cli.config.rule import clash, is_set
from art_cli.config.sections.llm import REFERENCE, LLMConfig
from art_cli.config.values import Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig(LLMConfig):
    """RULER: an LLM that scores the trajectories of a group relative to each other.

    `model: reference` is the policy's base model without the adapter, on the run's own engine.
    """

    use: Literal["ruler"] | Annotated[str, Plugin("judges")] = "ruler"
    """RULER, or a class of your own, which is made of this section."""
    model: str = ""
    """The name that litellm knows the model by, for example openai/o3. RULER needs it."""
    rubric: str | None = None
    """The criteria for a good trajectory, as text. null: reaching the goal efficiently."""
    rubric_file: str | None = None
    """A text file with the rubric."""
    votes: Count = 1
    """How often the judge scores a group, each time in another order; the mean is used. Raise it if
    `art judge audit` shows noise."""
    max_per_call: Annotated[int, Field(ge=4)] = 16
    """The most trajectories in one request. Larger groups are scored in overlapping parts."""
    on_failure: Literal["drop", "env", "stop"] = "drop"
    """What to do if the judge fails to score a group. drop: leave the group out; env: use the env's
    score; stop: save the run and end it."""
    max_usd: Positive | None = None
    """The most US dollars that the judge may cost in the whole run. At this limit the run is saved
    and stops. null: no limit."""
    cache: bool = True
    """Store answers on disk, so that the same request is paid for only once."""


JUDGE_RULES = (
    clash(
        {"judge.model": "", "judge.use": "ruler"},
        "missing. Add for example: model: openai/o3",
    ),
    clash(
        {"judge.rubric_file": is_set, "judge.rubric": is_set},
        "stands beside judge.rubric; keep one of them",
    ),
    clash(
        {"judge.command": is_set, "judge.api_base": is_set},
        "starts a server of its own, so judge.api_base has no effect; remove one of them",
    ),
    *(
        clash(
            {f"judge.{key}": bool, "judge.model": REFERENCE},
            "has no effect with judge.model=reference, which asks nobody; remove it",
        )
        for key in (
            *("fallbacks", "command", "api_base", "api_key_env", "params", "prices", "max_usd"),
            "max_input_tokens",
        )
    ),
    clash(
        {"judge.model": REFERENCE, "model.adapter": None},
        "is reference, the base with its adapter off, but model.adapter is null; name another "
        "model, or train an adapter",
    ),
)
