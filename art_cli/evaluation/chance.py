"""The candidate `random`: what chance earns at a task.

It says turns of the demonstrations, drawn at random, whatever the episode. So it knows how one
speaks in the env, and nothing of the task; who is hardly better has learned as much.
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
    """Implement AgentFactory: the same turns in each episode, drawn anew."""

    turns: list[str]

    def open(self, seed: int) -> RandomTurns:
        """See AgentFactory."""
        return RandomTurns(seed, self.turns)


def random_agents(cfg: Experiment, env_class: type[Env], settings: Any) -> RandomAgents:
    """Return players with the turns that the policy warms up on, or else those that the env has.

    Raises UsageError where there are none.
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
