"""A task whose numbers are known: a player on loopback passes each scenario as often as it says.

Scenario `n` is passed in `n % 5` of its first four trials, so that pass^k is known in closed form.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from loopback_judge import Answer, Ask

import art_cli as art
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Services
from art_cli.types import Message, Scenario, Split

NUM = 10
PASSES = [n % 5 for n in range(NUM)]  # of four trials


class Quiz(art.Env):
    """Say yes, through a tool; sometimes the env breaks."""

    services: Services

    @dataclass(frozen=True)
    class Config:
        """Settings."""

        user: LLMConfig | None = None  # who asks
        breaks: str = ""  # the scenario whose score cannot be told
        wanted: str = "yes"

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Two levels, three kinds."""
        for n in range(NUM):
            data = {"level": n % 2, "kind": "abc"[n % 3], "passes": PASSES[n]}
            yield Scenario(id=f"{split}-{n}", split=split, seed=n, data=data)

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[Message]]:
        """What a tokenizer is made of."""
        call = '<tool_call>{"name": "answer", "arguments": {"text": "yes"}}</tool_call>'
        user = "Question val-0, passed 1 times."
        yield [{"role": "user", "content": user}, {"role": "assistant", "content": call}]

    async def start(self) -> str:
        """The question."""
        self.said = ""
        question = f"Question {self.scenario.id}, passed {self.scenario.data['passes']} times."
        if self.cfg.user:
            asked = await self.services.llm(self.cfg.user).ask([{"role": "user", "content": "?"}])
            question = f"{asked.text} {question}"
        return question

    @art.tool()
    async def answer(self, text: str) -> art.Done:
        """Give the answer."""
        self.said = text
        return art.Done()

    async def score(self, trajectory: art.Trajectory) -> float:
        """Whether it was the right one."""
        if self.scenario.id == self.cfg.breaks:
            raise LookupError("broken")
        self.metrics["success"] = float(self.said == self.cfg.wanted)
        return self.metrics["success"]


class Essay(art.Env):
    """Say something good; only a judge can tell."""

    num_scenarios: ClassVar[dict[Split, int]] = {"train": 1, "val": 4, "test": 1}

    async def start(self) -> str:
        """What is asked."""
        return f"Essay {self.scenario.id}."

    async def score(self, trajectory: art.Trajectory) -> None:
        """Nothing."""


class Player:
    """Passes a question as often as it says, then fails it; `played` counts."""

    def __init__(self, extra: int = 0) -> None:
        """`extra`: more passes than the question says."""
        self.played: Counter[str] = Counter()
        self._extra = extra
        self._lock = threading.Lock()

    def __call__(self, ask: Ask) -> Answer:
        """A step of a LoopbackJudge."""
        found = re.search(r"Question (\S+), passed (\d)", ask.messages[-1]["content"])
        if not found:  # it is asked whether it is there, or is the user
            return Answer(text="Hello.")
        with self._lock:
            self.played[found[1]] += 1
            passes = self.played[found[1]] <= int(found[2]) + self._extra
        return Answer(calls=(("answer", '{"text": "yes"}' if passes else '{"text": "no"}'),))
