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
    """RULER: an LLM that scores the trajectories of a group against each other.

    `model: reference` is the policy's own base, its adapter off, on the run's own engine.
    """

    use: Literal["ruler"] | Annotated[str, Plugin("judges")] = "ruler"
    """RULER, or a class of your own, which is made of this section."""
    model: str = ""
    """The name that litellm knows the model by, for example openai/o3. RULER needs it."""
    rubric: str | None = None
    """What is good, in words. null: reaching the goal, efficiently."""
    rubric_file: str | None = None
    """A text file that holds the rubric."""
    votes: Count = 1
    """How often the judge scores a group, each time in another order; the mean counts. Raise it
    where `art judge audit` shows noise."""
    max_per_call: Annotated[int, Field(ge=4)] = 16
    """The most trajectories of one request. Larger groups are scored in overlapping parts."""
    on_failure: Literal["drop", "env", "stop"] = "drop"
    """What happens where the judge fails at a group. drop: it is left out; env: the env's score
    stands in; stop: the run is saved and ends."""
    max_usd: Positive | None = None
    """The most US dollars that the judge may cost in the whole run, which is then saved and stops.
    null: no limit."""
    cache: bool = True
    """Keep answers on disk, so that a request is paid for once."""


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
