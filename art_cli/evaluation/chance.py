"""The candidate `random`: the reward of random play.

It says turns of the demonstrations, drawn at random, in any episode. It thus has the format of the
env's turns, but no knowledge of the task. A policy that is hardly better has learned only that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from art_cli.config.schema import Experiment
from art_cli.envs.base import Env
from art_cli.errors import UsageError
from art_cli.rollout.agents.scripted import RandomTurns
from art_cli.training.demonstrations import load_demonstrations

NUM_DEMONSTRATIONS = 256


@dataclass(frozen=True, slots=True)
class RandomAgents:
    """Agents that say random demonstrated turns; implements `AgentFactory`."""

    turns: list[str]

    def open(self, seed: int) -> RandomTurns:
        """See `AgentFactory`."""
        return RandomTurns(seed, self.turns)


def random_agents(cfg: Experiment, env_class: type[Env], settings: Any) -> RandomAgents:
    """Return agents with the turns of the SFT demonstrations, or else of the env's own.

    Raises UsageError if there are none.
    """
    if cfg.agent.use != "builtin":
        raise UsageError(
            "the candidate random says turns itself, and does not play through an agent "
            f"(agent.use={cfg.agent.use}); leave it out"
        )
    source = cfg.sft.demonstrations if cfg.sft else "env"
    try:
        found = load_demonstrations(source, env_class, settings, NUM_DEMONSTRATIONS)
    except UsageError as e:
        raise UsageError(f"the candidate random says turns of demonstrations, but {e}") from None
    said = [m["content"] for told in found for m in told if m["role"] == "assistant"]
    return RandomAgents(said)
