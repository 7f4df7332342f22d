"""A task in which half of the scenarios go wrong, each in a way that its first message names."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Iterable
from typing import Any

import art_cli as art

PATIENCE = 20.0  # seconds that a tool has; an episode has twice as many
FAILING = ("raises", "hangs", "hangs in a thread", "surrogate", "number", "exit", "nan")
ODD = ("huge", "escape")  # of the env, that an episode outlives
# Of the program, which plays on after most of them.
ASKED = (
    *("lone surrogate", "surrogate in a tool", "deep", "digits", "twice", "not json", "nan"),
    *("8 MB", "bomb", "hangs up", "half a request", "bad tool call", "wrong secret"),
)
CRASHING = ("ends with 3", "prints without end", "killed")
STRAYING = ("leaves a child",)
KINDS = (*FAILING, *ODD, *ASKED, *CRASHING, *STRAYING)
OSC = "\x1b]52;c;aGFoYQ==\x07\x1b[2J\x9b31m"


def kind_of(seed: int) -> str:
    """What goes wrong in the scenario with this seed."""
    rng = random.Random(seed)
    return rng.choice(KINDS) if rng.random() < 0.5 else "nothing"


class Hostile(art.Env):
    """Say anything three times; a reply may fail, hang, or be no text at all."""

    max_turns = 8
    tool_timeout = PATIENCE
    episode_timeout = 2 * PATIENCE  # a reply has what is left of it

    async def start(self) -> str:
        """The kind of what goes wrong."""
        self.kind = kind_of(self.scenario.seed)
        self.num_said = 0
        return f"[{self.kind}] red"

    @art.tool()
    async def look(self, where: str, deep: int = 0) -> str:
        """Look somewhere."""
        return f"{len(where)} {deep}"

    async def reply(self, text: str) -> str | art.Done:
        """The fault, or another colour."""
        self.num_said += 1
        if self.num_said == 1:
            return await self._fault()
        return art.Done() if self.num_said > 2 else "blue"

    async def _fault(self) -> str:
        match self.kind:
            case "raises":
                raise RuntimeError(f"{OSC} as it was told to")
            case "hangs":
                await asyncio.sleep(1e6)
            case "hangs in a thread":
                await asyncio.to_thread(time.sleep, 3 * PATIENCE)
            case "surrogate":
                return "\ud800"
            case "number":
                return 5  # type: ignore[return-value]
            case "exit":
                sys.exit(3)
            case "huge":
                return "red " * 250_000
            case "escape":
                return OSC
        return "green"

    async def score(self, trajectory: art.Trajectory) -> float:
        """How much of what was said is a letter."""
        if self.kind == "nan":
            return float("nan")
        said = "".join(m["content"] for m in trajectory.messages if m["role"] == "assistant")
        return sum(c.isalpha() for c in said) / max(1, len(said))

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[art.Message]]:
        """Colours, where nothing goes wrong."""
        for n in range(num):
            scenario = art.Scenario(id=f"demo-{n}", split="train", seed=HARMLESS)
            yield art.play(cls(scenario, cfg), lambda: "red blue green")


HARMLESS = next(seed for seed in range(1000) if kind_of(seed) == "nothing")
