"""The agents at a game's other seats: `env.opponents`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from art_cli.config.sections.env import Opponent, OpponentsConfig, SavedPolicyConfig
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Env, Services
from art_cli.envs.game import Game
from art_cli.errors import UsageError
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.agents.prompted import PromptedAgents
from art_cli.rollout.match import SeatedAgents


def check_opponents(cfg: OpponentsConfig | None, env: type[Env], settings: Any) -> None:
    """Raise UsageError if the env does not support the configured opponents."""
    players = {"train": cfg.train, "eval": cfg.eval} if cfg else {"train": "script"}
    if issubclass(env, Game) and len(env.seats_of(settings)) > 1 and not env.has_script(settings):
        for key in (key for key, who in players.items() if who == "script"):
            raise UsageError(
                f"env.opponents.{key}: {env.__name__} has no script() that plays this game; name "
                f"another opponent, e.g. env.opponents.{key}=start"
            )
    if cfg is None or (cfg.train == cfg.eval == "script" and issubclass(env, Game)):
        return
    if env.art_remote:
        what = f"{env.__name__} runs in an interpreter of its own (env.python), where only its own"
        raise UsageError(f"env.opponents: {what} script plays the other seats; remove one of them")
    if not issubclass(env, Game):
        raise UsageError(
            f"env.opponents: {env.__name__} has one player; remove it, or write the env as a game "
            "of several seats, an art_cli.Game (docs/games.md)"
        )


def seated(
    who: Opponent,
    policy: AgentFactory,
    env: type[Env],
    settings: Any,
    services: Services,
    frozen: Callable[[Literal["start"] | SavedPolicyConfig], AgentFactory] | None = None,
) -> AgentFactory:
    """Return agents that play against opponents, or `policy` itself if the env's script opposes it.

    `frozen` creates agents with the weights of step 0 or of a checkpoint.
    """
    if who == "script":
        return policy
    assert issubclass(env, Game)
    if who == "policy":
        opponents = policy
    elif isinstance(who, LLMConfig):
        opponents = PromptedAgents(services.llm(who), [])
    else:
        assert frozen
        opponents = frozen(who)
    seats = env.seats_of(settings)
    return SeatedAgents(policy=policy, opponents=opponents, seats=seats, learns=who == "policy")
