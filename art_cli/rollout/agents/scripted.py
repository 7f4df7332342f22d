"""Agents without a model, whose turns are known in advance."""

from __future__ import annotations

import random
from collections.abc import Sequence

from art_cli.rollout.agent import TurnAgent
from art_cli.types import Message, Trajectory


class Player(TurnAgent):
    """An agent that remembers its turns."""

    def __init__(self) -> None:
        self.turns: list[str] = []

    def answer(self, messages: list[Message]) -> str:
        """Return the next turn."""
        raise NotImplementedError

    async def act(self, messages: list[Message]) -> str:
        """See TurnAgent."""
        self.turns.append(self.answer(messages))
        return self.turns[-1]

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. There are no tokens, because no model sampled the turns."""
        trajectory.policy_versions = [0] * len(self.turns)


class RandomTurns(Player):
    """Plays turns of demonstrations, drawn uniformly, whatever the episode."""

    def __init__(self, seed: int, turns: Sequence[str]) -> None:
        super().__init__()
        self._rng = random.Random(seed)
        self._demonstrated = turns

    def answer(self, messages: list[Message]) -> str:
        """See Player."""
        return self._rng.choice(self._demonstrated)
