"""A game of two seats for tests: the seats count in turn, and who says the last number wins."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import art_cli as art

SAY = ("one", "two")


class Counting(art.Game):
    """Each says one or two; what was said is added, and who reaches `until` wins."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings."""

        until: int = 5

    seats = ("left", "right")
    max_turns = 8
    closed = 0

    def __init__(self, scenario: art.Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.sum, self.said = 0, ""
        self.winner = ""

    def system_of(self, seat: str) -> str:
        """One of its own for each seat."""
        return f"You are {seat}."

    async def observe(self, seat: str) -> str:
        """The sum."""
        return f"{self.sum}{self.said}"

    async def move(self, seat: str, text: str) -> None:
        """Anything but one or two loses."""
        self.turn = self.other(seat)
        if text not in SAY:
            self.winner, self.turn = self.other(seat), None
            return
        self.sum, self.said = self.sum + 1 + SAY.index(text), f" {text}"
        if self.sum >= self.cfg.until:
            self.winner, self.turn = seat, None

    async def reward(self, seat: str) -> float:
        """1 for who wins; who was to move as the game was cut off has lost."""
        winner = self.winner or (self.other(self.turn) if self.turn else "")
        return float(seat == winner)

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """Who won."""
        return {"success": float(self.winner == seat), "sum": self.sum}

    async def judge_context(self) -> str:
        """Who is asked, and how it ended."""
        return f"{self.seat}: {self.winner} won"

    async def script(self, seat: str) -> str:
        """A random move."""
        return self.rng.choice(SAY)

    async def close(self) -> None:
        """Count."""
        type(self).closed += 1

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[art.Message]]:
        """Random moves."""
        rng = random.Random(0)
        for scenario in list(cls.scenarios(cfg, "train"))[:num]:
            yield art.play(cls(scenario, cfg), lambda: rng.choice(SAY))


class Polite(Counting):
    """The same, by plain methods, which run in threads; `set_up` decides who begins."""

    def set_up(self) -> None:  # type: ignore[override]
        """The right one begins."""
        self.turn = "right"

    def observe(self, seat: str) -> str:  # type: ignore[override]
        """The sum."""
        return f"{self.sum}{self.said}"


class Hidden(Counting):
    """The same, where a seat has to look at the sum, and may move by a tool."""

    async def observe(self, seat: str) -> str:
        """Nothing of the sum."""
        return f"{seat}, it is your turn."

    @art.tool()
    async def look(self) -> str:
        """Look at the sum."""
        return f"{self.turn} sees {self.sum}"

    @art.tool(writes=True)
    async def say(self, number: int) -> None:
        """Say a number."""
        if number == 0:
            raise art.ToolError("say one or two")
        assert self.turn
        await self.move(self.turn, dict(enumerate(SAY, 1)).get(number, ""))

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[art.Message]]:
        """Random moves, by words and by calls, half of them behind a look."""
        rng = random.Random(0)

        def turn() -> str:
            number = rng.randint(1, 2)
            return rng.choice([call("look"), SAY[number - 1], call("say", number=number)])

        for scenario in list(cls.scenarios(cfg, "train"))[:num]:
            yield art.play(cls(scenario, cfg), turn)


def call(name: str, **arguments: Any) -> str:
    """A call in the text form."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


async def plays(client: Any, task: Any) -> None:
    """A whole game: calls go to the game's tools, words are moves."""
    while not task.is_over:
        answer = await client.chat.completions.create(
            model="policy", messages=task.messages, tools=task.tools
        )
        message = answer.choices[0].message
        task.messages.append(message.model_dump(exclude_none=True))
        for each in message.tool_calls or ():
            result = await task.call_tool(each.function.name, json.loads(each.function.arguments))
            task.messages.append({"role": "tool", "tool_call_id": each.id, "content": result})
        if not message.tool_calls:
            heard = await task.reply(message.content or "")
            task.messages.append({"role": "user", "content": heard})
