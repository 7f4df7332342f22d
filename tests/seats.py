"""Players at the seats of a game whose words are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from art_cli.chat.render import Renderer
from art_cli.rollout.agent import Agent, TurnAgent
from art_cli.types import Completion, Message, Scenario, Trajectory

SEATS = ("left", "right")


def scenario(seat: str, number: int = 0) -> Scenario:
    """A game as one seat plays it."""
    return Scenario(id=f"train-{number}-{seat}", split="train", seed=number, data={"seat": seat})


class Says(TurnAgent):
    """Says given words, and remembers what it read, was offered, and when it was to wait."""

    def __init__(self, words: Iterable[str | Exception]) -> None:
        self.words = iter(words)
        self.read: list[str] = []
        self.offered: list[str] = []
        self.expected: list[bool] = []
        self.num = self.closed = 0

    def expect(self, coming: bool) -> None:
        """Remember it."""
        self.expected.append(coming)

    def offer(self, tools: list[dict[str, Any]]) -> None:
        """Remember their names."""
        self.offered = [each["function"]["name"] for each in tools]

    async def act(self, messages: list[Message]) -> str:
        """Say the next words, or raise them."""
        self.read += [m["content"] for m in messages]
        word = next(self.words)
        if isinstance(word, Exception):
            raise word
        self.num += 1
        return word

    def record(self, trajectory: Trajectory) -> None:
        """Each turn costs a quarter."""
        trajectory.policy_versions = [3] * self.num
        trajectory.usd = 0.25 * self.num

    def close(self) -> None:
        """Count."""
        self.closed += 1


class Players:
    """An AgentFactory whose agents say, one after another, what is given."""

    def __init__(self, *words: Iterable[str | Exception]) -> None:
        self.agents: Sequence[Says] = [Says(each) for each in words]
        self.seeds: list[int] = []

    def open(self, seed: int) -> Agent:
        """The next one."""
        self.seeds.append(seed)
        return self.agents[len(self.seeds) - 1]


class Script:
    """A session that says given texts."""

    def __init__(self, renderer: Renderer, texts: Iterable[str]) -> None:
        self._renderer = renderer
        self._texts = iter(texts)

    async def generate(self, ids: list[int]) -> Completion:
        """The next text."""
        said = list(self._renderer.encode(next(self._texts) + self._renderer.end_of_turn))
        return Completion(
            token_ids=said, logprobs=[-1.0] * len(said), finish_reason="stop", policy_version=0
        )

    def expect(self, coming: bool) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is held."""
