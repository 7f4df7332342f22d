"""The section `env`: the task environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from art_cli.config.rule import Rule, clash
from art_cli.config.sections.llm import REFERENCE, LLMConfig
from art_cli.config.values import FORBID_UNKNOWN, Count, CountOrZero


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPolicyConfig:
    """A checkpoint of another run as a frozen opponent, sampled with this run's `sampling`."""

    __pydantic_config__ = FORBID_UNKNOWN

    checkpoint: str
    """The directory of the run, for example runs/default/self-play."""
    step: Literal["best", "last"] | CountOrZero = "best"
    """The step of the checkpoint. `best` and `last` require that the run has ended."""


Opponent = Literal["policy", "start", "script"] | LLMConfig | SavedPolicyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class OpponentsConfig:
    """The policy's opponents, if the env is a game of several seats (`art_cli.Game`).

    `policy` is the policy itself (self-play): every seat is trained on its own rewards. `start` is
    the policy of step 0, frozen. `script` is the env's own player. `{model: openai/o3}` is a model
    behind an API. `{checkpoint: runs/default/first}` is the frozen policy of an earlier run.
    """

    __pydantic_config__ = FORBID_UNKNOWN

    train: Literal["policy", "start", "script"] | LLMConfig | SavedPolicyConfig = "policy"
    """The opponent in training games."""
    eval: Literal["start", "script"] | LLMConfig | SavedPolicyConfig = "script"
    """The opponent in held-out games. A fixed opponent keeps evaluations comparable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """The task environment and its settings."""

    use: str
    """A registered name (`art envs` lists them), `package.module:Class` or
    `path/to/file.py:Class`."""
    args: dict[str, Any] = field(default_factory=dict)
    """The env's own settings. `art envs NAME` lists them."""
    python: str | None = None
    """The Python interpreter of an environment with the env's packages. null: art's own."""
    concurrency: Count | None = None
    """The most episodes that are open at once. Set it if each holds a server, a browser or another
    scarce resource. null: no limit."""
    opponents: OpponentsConfig | None = None
    """The opponents at the other seats of a game. null: the env's own script."""


def opponents_asked(cfg: OpponentsConfig | None) -> dict[str, LLMConfig]:
    """Return the opponents that are models behind an API, by their keys."""
    return {key: who for key, who in _by_key(cfg).items() if isinstance(who, LLMConfig)}


def opponents_saved(cfg: OpponentsConfig | None) -> dict[str, SavedPolicyConfig]:
    """Return the opponents that are checkpoints, by their keys."""
    return {key: who for key, who in _by_key(cfg).items() if isinstance(who, SavedPolicyConfig)}


def _by_key(cfg: OpponentsConfig | None) -> dict[str, Opponent]:
    return {"env.opponents.train": cfg.train, "env.opponents.eval": cfg.eval} if cfg else {}


def _holds_weights(opponents: Any) -> bool:
    players = opponents.values() if isinstance(opponents, dict) else ()
    return any(p == "start" or (isinstance(p, dict) and "checkpoint" in p) for p in players)


ENV_RULES = (
    Rule(
        "env.opponents",
        ("train.num_processes",),
        lambda opponents, num: _holds_weights(opponents) and num > 1,
        "holds start or a checkpoint, which play in one process, but train.num_processes is {1}; "
        "write script, or a model behind an API",
    ),
    *(
        clash(
            {f"env.opponents.{key}.model": REFERENCE},
            f"is reference; write start, the policy as it was at step 0: env.opponents.{key}=start",
        )
        for key in ("train", "eval")
    ),
)
