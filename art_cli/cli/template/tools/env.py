"""A leave desk: the smallest task with tools. Change it into yours.

One episode, as a perfect clerk plays it:

    user        Ann asks for 5 days of leave.
    assistant   <tool_call>{"name": "days_left", "arguments": {"name": "Ann"}}</tool_call>
    tool        3 days left
    assistant   <tool_call>{"name": "grant", "arguments": {"name": "Ann", "days": 3}}</tool_call>
    tool        granted
    assistant   done

The tools do what they are told. What is learned is the desk's policy: look first, and grant what
was asked for, but no more than is left.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from art_cli import (
    Done,
    Env,
    Message,
    Scenario,
    Split,
    ToolError,
    Trajectory,
    play,
    seed_of,
    tool,
)

NAMES = ("Ann", "Bob", "Eve", "Ian", "Kim", "Lea", "Max", "Pia", "Sam", "Tom", "Una", "Zoe")


class LeaveDesk(Env):
    """Grant leave as far as there is some left."""

    @dataclass(frozen=True)
    class Config:
        """Settings of `env.args` in config.yaml; types are checked, unknown keys refused."""

        most_days: int = 5  # that anyone asks for or has left

    system = (
        "You grant leave. Look up what is left; grant what is asked, but no more than that. "
        "End with one word: done or none."
    )
    max_turns = 4  # the episode ends after so many answers of the model

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """All cases; each belongs to one split by its content, so that none is in two."""
        days = range(cfg.most_days + 1)
        cases = [(n, asked, left) for n in NAMES for asked in days[1:] for left in days]
        random.Random(0).shuffle(cases)
        for name, asked, left in cases:
            seed = seed_of(name, asked, left)
            if split == {0: "val", 1: "test"}.get(seed % 6, "train"):
                data = {"name": name, "asked": asked, "left": left}
                yield Scenario(id=f"{name}-{asked}-{left}", split=split, seed=seed, data=data)

    async def start(self) -> str:
        """One object is one episode; its state is in `self`. Returns what the model reads first."""
        self.case = self.scenario.data
        self.looked, self.granted, self.answer = False, 0, ""
        return f"{self.case['name']} asks for {self.case['asked']} days of leave."

    @tool()
    def days_left(self, name: str) -> str:
        """Return how many days of leave someone has left.

        Args:
            name: the first name
        """
        self._check(name)
        self.looked = True
        return f"{self.case['left']} days left"

    @tool(writes=True)
    def grant(self, name: str, days: int) -> str:
        """Grant someone leave. This cannot be taken back.

        Args:
            name: the first name
            days: how many, at least 1
        """
        self._check(name)
        if days < 1:
            raise ToolError("days must be at least 1")  # what the model reads
        self.granted += days
        return "granted"

    def _check(self, name: str) -> None:
        if name != self.case["name"]:
            raise ToolError(f"nobody called {name!r} has asked")

    async def reply(self, text: str) -> Done:
        """A turn that called no tool. Here it ends the episode; a user could answer instead.

        The model may say anything. An exception here or in a tool, other than ToolError, counts as
        a bug of this file, not as a bad answer: such an episode is not trained on.
        """
        self.answer = text.rpartition(" ")[2]
        return Done()

    async def score(self, trajectory: Trajectory) -> float:
        """The reward, here 0 to 1: all that training knows of what you want."""
        granted_right = self.granted == min(self.case["asked"], self.case["left"])
        answered_right = self.answer == ("done" if self.granted else "none")
        self.metrics["success"] = float(self.looked and granted_right)  # only logged
        if not (self.looked and answered_right):
            return 0.0  # who has not looked was only lucky
        return 0.2 + 0.8 * granted_right

    def gold(self) -> Iterator[str]:
        """The turns of a perfect clerk, who may know all; `art envs check` plays them."""
        return self._clerk(min(self.scenario.data["asked"], self.scenario.data["left"]))

    def _clerk(self, days: int) -> Iterator[str]:
        name = self.case["name"]
        yield call("days_left", name=name)
        # Saying the numbers puts them where even a very small model sees both.
        facts = f"{self.case['asked']} {self.case['left']}"
        if days:
            yield f"{facts} {call('grant', name=name, days=days)}"
            yield "done"
        yield f"{facts} none"

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Episodes for SFT of a model that cannot speak yet, of a careless clerk.

        They show how to call tools and what to look at, not the policy: that is left to be learned
        by reward.
        """
        train = list(cls.scenarios(cfg, "train"))
        rng = random.Random(0)
        for scenario in islice(train * (num // len(train) + 1), num):
            env = cls(scenario, cfg)
            days = rng.choice([scenario.data["asked"], scenario.data["left"]])
            yield play(env, env._clerk(days).__next__)


def call(tool_name: str, **arguments: Any) -> str:
    """A tool call as the model writes it."""
    return f"<tool_call>{json.dumps({'name': tool_name, 'arguments': arguments})}</tool_call>"
