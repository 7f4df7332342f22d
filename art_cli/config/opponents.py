"""The section `env.opponents`: who plays the seats of a game that the policy does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from art_cli.config.llm import LLMConfig
from art_cli.config.values import FORBID_UNKNOWN

Opponent = Literal["policy", "start", "script"] | LLMConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentsConfig:
    """Who plays against the policy, where the env is a game of several seats (`art_cli.Game`).

    `policy` is the policy itself (self-play): every seat is trained, by rewards of its own. `start`
    is the policy of step 0, frozen; `script` is the env's own player; {model: openai/o3} is a model
    that is asked.
    """

    __pydantic_config__ = FORBID_UNKNOWN
    train: Literal["policy", "start", "script"] | LLMConfig = "policy"  # in games that train
    eval: Literal["start", "script"] | LLMConfig = "script"  # in held-out games


def opponents_asked(cfg: OpponentsConfig | None) -> dict[str, LLMConfig]:
    """Return the opponents that are models which are asked, by their settings."""
    both = {"train": cfg.train, "eval": cfg.eval} if cfg else {}
    return {f"env.opponents.{k}": v for k, v in both.items() if isinstance(v, LLMConfig)}
