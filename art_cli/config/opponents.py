"""The section `env.opponents`: who plays the seats of a game that the policy does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from art_cli.config.llm import LLMConfig
from art_cli.config.values import FORBID_UNKNOWN, CountOrZero


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicyConfig:
    """A checkpoint of another run, which plays as it did there: frozen, sampled as the policy is.

    `best` and `last` are those of a run that has ended.
    """

    __pydantic_config__ = FORBID_UNKNOWN
    checkpoint: str  # the folder of the run, e.g. runs/default/self-play
    step: Literal["best", "last"] | CountOrZero = "best"


Opponent = Literal["policy", "start", "script"] | LLMConfig | SavedPolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentsConfig:
    """Who plays against the policy, where the env is a game of several seats (`art_cli.Game`).

    `policy` is the policy itself (self-play): every seat is trained, by rewards of its own. `start`
    is the policy of step 0, frozen; `script` is the env's own player; {model: openai/o3} is a model
    that is asked; {checkpoint: runs/default/first} is an earlier run, frozen.
    """

    __pydantic_config__ = FORBID_UNKNOWN
    # In games that train.
    train: Literal["policy", "start", "script"] | LLMConfig | SavedPolicyConfig = "policy"
    # In held-out games.
    eval: Literal["start", "script"] | LLMConfig | SavedPolicyConfig = "script"


def opponents_asked(cfg: OpponentsConfig | None) -> dict[str, LLMConfig]:
    """Return the opponents that are models which are asked, by their settings."""
    return {key: who for key, who in _by_key(cfg).items() if isinstance(who, LLMConfig)}


def opponents_saved(cfg: OpponentsConfig | None) -> dict[str, SavedPolicyConfig]:
    """Return the opponents that are checkpoints, by their settings."""
    return {key: who for key, who in _by_key(cfg).items() if isinstance(who, SavedPolicyConfig)}


def _by_key(cfg: OpponentsConfig | None) -> dict[str, Opponent]:
    return {"env.opponents.train": cfg.train, "env.opponents.eval": cfg.eval} if cfg else {}
