"""The base class of games: an env of several seats.

    class Nim(Game):
        '''Take one to three of a heap; who takes the last one wins.'''

        seats = ("first", "second")

        def __init__(self, scenario: Scenario, cfg: Any) -> None:
            super().__init__(scenario, cfg)
            self.left = self.rng.randint(8, 20)

        async def observe(self, seat: str) -> str:
            return f"{self.left} are left."

        async def move(self, seat: str, text: str) -> None:
            self.left -= int(text)  # a real one checks it
            self.last, self.turn = seat, self.other(seat) if self.left else None

        async def reward(self, seat: str) -> float:
            return 1.0 if self.last == seat else -1.0

        async def script(self, seat: str) -> str:
            return str(self.rng.randint(1, min(3, self.left)))

A seat may call tools (`@tool`) in its turn: who calls is `self.turn`, and a call that sets it was
the seat's move.

A scenario is a game and the seat that is played in it. As it stands, a Game is an env of one player
against its `script`, and all that is done with envs is done with it. Where `env.opponents` names
others, `rollout/match.py` gives every seat a player and a conversation of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from art_cli.envs.base import Done, Env, Tool, ToolError
from art_cli.system.deadline import run_here
from art_cli.types import Message, Scenario, Split, Trajectory

SEAT = "seat"  # of a scenario's data


class Game(Env):
    """One game. Subclasses override `observe`, `move`, `reward`, and `script`."""

    seats: ClassVar[tuple[str, ...]] = ()
    turn: str | None  # the seat that moves next, from the first on; None: the game is over
    seat: str  # that is played in this episode; the others are its opponents'

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
        """Return the seats, where they follow from the settings."""
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
        """Return every game once for each seat."""
        for game in cls.games(cfg, split):
            for seat in cls.seats_of(cfg):
                yield replace(game, id=f"{game.id}-{seat}", data={**game.data, SEAT: seat})

    def other(self, seat: str) -> str:
        """Return the seat behind this one, in their order."""
        seats = self.seats_of(self.cfg)
        return seats[(seats.index(seat) + 1) % len(seats)]

    @property
    def mover(self) -> str | None:
        """The seat whose turn it is. Raise ValueError where that is none of the seats."""
        if self.turn is not None and self.turn not in self.seats_of(self.cfg):
            raise ValueError(f"turn is {self.turn!r}, and there is no such seat")
        return self.turn

    def system_of(self, seat: str) -> str:
        """Return the system prompt of a seat."""
        return self.system

    def tools_of(self, seat: str) -> list[Tool]:
        """Return the tools of a seat, once its first turn has come: those marked with `@tool`.

        Who calls one is `self.turn`. A tool that sets `self.turn` was the seat's move.
        """
        return super().tools()

    async def set_up(self) -> None:
        """Make ready what the game needs; `close` releases it. Whoever begins is known then."""

    async def observe(self, seat: str) -> str:
        """Return what a seat reads as its turn comes."""
        raise NotImplementedError(f"{type(self).__name__} must override observe()")

    async def move(self, seat: str, text: str) -> None:
        """Take what a seat said in its turn, and set `turn`: a bad move is the game's to judge."""
        raise NotImplementedError(f"{type(self).__name__} must override move()")

    async def reward(self, seat: str) -> float | None:
        """Return the reward of a seat.

        Where `turn` is not None the game was cut off there: that seat had no turn left, or no room.
        """
        raise NotImplementedError(f"{type(self).__name__} must override reward()")

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """Return numbers of a seat that are only logged: `success`, whether it has won, and others.

        `success` and the reward are logged by seat, too.
        """
        return {}

    async def script(self, seat: str) -> str:
        """Return a move of the env's own player, from `self.rng`."""
        raise NotImplementedError(f"{type(self).__name__} must override script()")

    async def opening(self, seat: str) -> list[Message]:
        """Return what a seat reads before its first move."""
        said: Message = {"role": "user", "content": await self._do(self.observe, seat)}
        system = self.system_of(seat)
        return [{"role": "system", "content": system}, said] if system else [said]

    async def start(self) -> list[Message]:
        """See Env. The others have moved where they come first."""
        await self._do(self.set_up)
        await self._others_move()
        return await self.opening(self.seat)

    async def reply(self, text: str) -> str | Done:
        """See Env. The others have moved again."""
        if self.turn is not None:
            await self._do(self.move, self.seat, text)
        return await self._again()

    def tools(self) -> list[Tool]:
        """Return those of `self.seat`."""
        return self.tools_of(self.seat)

    async def called(self, call: Callable[[], Any]) -> Any:
        """Return what comes back to a call of `self.seat`. Calls are made one after another."""
        async with self._calls:
            if self.turn is None:
                return Done()
            return await self.in_turn(lambda: run_here(call, what="a tool"), self._again)

    async def in_turn(
        self, call: Callable[[], Awaitable[Any]], again: Callable[[], Awaitable[str | Done]]
    ) -> Any:
        """Return what comes back to a call of the seat whose turn it is.

        Where that was its move, it is what the seat reads as its turn comes `again`, too.
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
        """Let the others move; return what `self.seat` reads then."""
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
