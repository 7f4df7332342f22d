"""The base class of games, which are envs with several seats.

    class Nim(Game):
        '''Take one to three from a heap; the player who takes the last one wins.'''

        seats = ("first", "second")

        def __init__(self, scenario: Scenario, cfg: Any) -> None:
            super().__init__(scenario, cfg)
            self.left = self.rng.randint(8, 20)

        async def observe(self, seat: str) -> str:
            return f"{self.left} are left."

        async def move(self, seat: str, text: str) -> None:
            self.left -= int(text)  # a real game validates it
            self.last, self.turn = seat, self.other(seat) if self.left else None

        async def reward(self, seat: str) -> float:
            return 1.0 if self.last == seat else -1.0

        async def script(self, seat: str) -> str:
            return str(self.rng.randint(1, min(3, self.left)))

A seat may call tools (`@tool`) in its turn. The calling seat is `self.turn`, and a call that sets
`self.turn` ends the seat's move.

A scenario is a game with the seat to be played in it. By default, a Game is an env of one player
against its `script`, and works everywhere an env does. If `env.opponents` names other opponents,
`rollout/match.py` gives every seat its own player and conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from art_cli.envs.base import Done, Env, Tool, ToolError
from art_cli.system.deadline import run_here
from art_cli.types import Message, Scenario, Split, Trajectory

SEAT = "seat"  # key in a scenario's data


class Game(Env):
    """One game. Subclasses override `observe`, `move`, `reward`, and `script`."""

    seats: ClassVar[tuple[str, ...]] = ()
    turn: str | None  # the seat that moves next, at first the first one; None: the game is over
    seat: str  # the seat of this episode's player; the others are opponents

    def __init__(self, scenario: Scenario, cfg: Any) -> None:
        super().__init__(scenario, cfg)
        if scenario.data.get(SEAT) not in self.seats_of(cfg):
            what = f"the scenario {scenario.id!r} names none of the seats of {type(self).__name__}"
            raise ValueError(f"{what}; override games(), not scenarios()")
        self.seat = scenario.data[SEAT]
        self.turn = self.seats_of(cfg)[0]
        self._calls = asyncio.Lock()

    @classmethod
    def seats_of(cls, cfg: Any) -> tuple[str, ...]:
        """Return the seats; override if they depend on the settings."""
        return cls.seats

    @classmethod
    def has_script(cls, cfg: Any) -> bool:
        """Return whether `script` can play the other seats."""
        return cls.script is not Game.script

    @classmethod
    def games(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Return the games of a split: scenarios without a seat, as `Env.scenarios` describes."""
        return super().scenarios(cfg, split)

    @classmethod
    def scenarios(cls, cfg: Any, split: Split) -> Iterable[Scenario]:
        """Yield every game once for each seat."""
        for game in cls.games(cfg, split):
            for seat in cls.seats_of(cfg):
                yield replace(game, id=f"{game.id}-{seat}", data={**game.data, SEAT: seat})

    def other(self, seat: str) -> str:
        """Return the next seat in order, after the last one the first."""
        seats = self.seats_of(self.cfg)
        return seats[(seats.index(seat) + 1) % len(seats)]

    @property
    def mover(self) -> str | None:
        """The seat whose turn it is, or None. Raises ValueError if it is not one of the seats."""
        if self.turn is not None and self.turn not in self.seats_of(self.cfg):
            raise ValueError(f"turn is {self.turn!r}, and there is no such seat")
        return self.turn

    def system_of(self, seat: str) -> str:
        """Return the system prompt of a seat."""
        return self.system

    def tools_of(self, seat: str) -> list[Tool]:
        """Return the tools of a seat at its first turn; by default those marked with `@tool`.

        `self.turn` is the seat that calls a tool. A tool that sets `self.turn` ends the seat's
        move.
        """
        return super().tools()

    async def set_up(self) -> None:
        """Prepare what the game needs; `close` releases it. The first seat is already known."""

    async def observe(self, seat: str) -> str:
        """Return the message that a seat reads at the start of its turn."""
        raise NotImplementedError(f"{type(self).__name__} must override observe()")

    async def move(self, seat: str, text: str) -> None:
        """Apply a seat's text as its move, and set `turn`. The game decides on a bad move."""
        raise NotImplementedError(f"{type(self).__name__} must override move()")

    async def reward(self, seat: str) -> float | None:
        """Return the reward of a seat.

        If `turn` is not None, the game was cut off because that seat had no turns or context left.
        """
        raise NotImplementedError(f"{type(self).__name__} must override reward()")

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """Return metrics of a seat that are only logged, such as `success` (1 if it has won).

        `success` and the reward are also logged by seat.
        """
        return {}

    async def script(self, seat: str) -> str:
        """Return a move of the env's own player, using `self.rng`."""
        raise NotImplementedError(f"{type(self).__name__} must override script()")

    async def opening(self, seat: str) -> list[Message]:
        """Return the messages that a seat reads before its first move."""
        said: Message = {"role": "user", "content": await self._do(self.observe, seat)}
        system = self.system_of(seat)
        return [{"role": "system", "content": system}, said] if system else [said]

    async def start(self) -> list[Message]:
        """See `Env`. Other seats that come first have moved."""
        await self._do(self.set_up)
        await self._others_move()
        return await self.opening(self.seat)

    async def reply(self, text: str) -> str | Done:
        """See `Env`. The other seats have moved again."""
        if self.turn is not None:
            await self._do(self.move, self.seat, text)
        return await self._again()

    def tools(self) -> list[Tool]:
        """Return the tools of `self.seat`."""
        return self.tools_of(self.seat)

    async def called(self, call: Callable[[], Any]) -> Any:
        """Return the result of a tool call by `self.seat`. Calls run one after another."""
        async with self._calls:
            if self.turn is None:
                return Done()
            return await self.in_turn(lambda: run_here(call, what="a tool"), self._again)

    async def in_turn(
        self, call: Callable[[], Awaitable[Any]], again: Callable[[], Awaitable[str | Done]]
    ) -> Any:
        """Return the result of a tool call by the seat whose turn it is.

        If the call was its move, the result also has the text that `again` returns for its next
        turn.
        """
        seat = self.turn
        try:
            given = await call()
        except ToolError as e:
            if self.turn == seat:
                raise
            given = f"error: {e}"
        if isinstance(given, Done):
            self.turn = None
        if self.turn == seat:
            return given
        seen = await again()
        return seen if given in (None, "") or isinstance(seen, Done) else f"{given}\n{seen}"

    async def score(self, trajectory: Trajectory) -> float | None:
        """Return the reward of `self.seat`."""
        reward = await self._do(self.reward, self.seat)
        found = dict(await self._do(self.metrics_of, self.seat))
        by_seat = {"reward": reward, "success": found.get("success")}
        if len(self.seats_of(self.cfg)) > 1:
            found |= {f"{k}_{self.seat}": v for k, v in by_seat.items() if v is not None}
        self.metrics = found
        return reward

    async def _again(self) -> str | Done:
        """Let the other seats move. Return the text that `self.seat` reads then."""
        await self._others_move()
        return Done() if self.turn is None else await self._do(self.observe, self.seat)

    async def _others_move(self) -> None:
        num, most = 0, self.max_turns * len(self.seats_of(self.cfg))
        while (seat := self.mover) is not None and seat != self.seat:
            if num == most:
                raise RuntimeError(f"script() of {seat!r} made {num} moves without an end")
            num += 1
            await self._do(self.move, seat, await self._do(self.script, seat))

    async def _do(self, method: Any, *args: Any) -> Any:
        return await run_here(method, *args, what=f"{method.__name__}()")
