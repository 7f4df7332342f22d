"""A game with an agent at each seat: the policy at one seat or at all of them.

    seat "first"     8 are left. -> 2                       5 are left. -> 1
    seat "second"                   6 are left. -> 1                       4 are left. ...

Each seat has its own conversation. In self-play, the policy plays all seats, and each has its own
trajectory, trained only on tokens that were sampled at that seat.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any

from art_cli.envs.base import Done, seed_of
from art_cli.envs.game import SEAT, Game
from art_cli.envs.returned import opening_of, text_of
from art_cli.rollout.agent import Agent, AgentFactory, TurnAgent
from art_cli.rollout.episode import Episode
from art_cli.system.deadline import user_code
from art_cli.system.untrusted import storable
from art_cli.types import Message, Scenario, StopReason, Trajectory


class _NeverMovedError(Exception):
    """The game was over before the seat's first turn."""


class _Table:
    """The order of turns in a game. One player has the turn at a time."""

    def __init__(self, first: str) -> None:
        """`first` is the seat whose agent starts the game, even if another seat moves first."""
        self.turn = first
        self.is_over = False
        self._seats: dict[str, tuple[Agent, asyncio.Event]] = {}
        self._gone: set[str] = set()

    def sit(self, seat: str, agent: Agent) -> None:
        """Assign an agent to a seat."""
        self._seats[seat] = agent, asyncio.Event()

    async def comes(self, seat: str) -> bool:
        """Wait for the turn of a seat. Return False if the game is over first."""
        while not self.is_over and self.turn != seat:
            self._seats[seat][1].clear()
            await self._seats[seat][1].wait()
        return not self.is_over

    def give(self, seat: str | None) -> None:
        """Give the turn to a seat. End the game for None or a seat whose player has left."""
        if seat is None or seat in self._gone:
            self.end()
        elif seat != self.turn:
            self.expect(seat, True)  # first, so that the engine cannot start a step in between
            self.expect(self.turn, False)
            self.turn = seat
            self._seats[seat][1].set()

    def expect(self, seat: str, coming: bool) -> None:
        """Tell an agent whether its own turn is next."""
        agent = self._seats[seat][0]
        if isinstance(agent, TurnAgent):
            agent.expect(coming)

    def leave(self, seat: str) -> None:
        """Remove a player. The game ends if it is that seat's turn, now or later."""
        self._gone.add(seat)
        if self.turn == seat:
            self.end()

    def end(self) -> None:
        """End the game for all seats."""
        self.is_over = True
        for _, woken in self._seats.values():
            woken.set()


class _Seat(Episode):
    """The game from one seat. Other seats move while it waits."""

    def __init__(self, game: Game, seat: str, beside: Episode, table: _Table) -> None:
        """`beside` opens and closes the game, and belongs to the seat `game.seat`."""
        is_own = seat == game.seat
        scenario = beside.trajectory.scenario
        own = beside.trajectory if is_own else Trajectory(scenario=at_seat(scenario, seat))
        super().__init__(game, own, beside)
        self.shares_slot = not is_own
        self._game = game
        self._seat = seat
        self._opens = beside if is_own else None
        self._table = table
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> list[Message]:
        """See Episode. Raises _NeverMovedError."""
        self._table.expect(self._seat, self._table.turn == self._seat)
        if self._opens:
            await self._opens.set_up(self._game.set_up)
            self._table.give(self._game.mover)
        has_turn = await self._table.comes(self._seat)
        seen = await self.ask(self._game.opening, self._seat, what="observe()")
        messages = opening_of(self._game, "observe", seen)
        with user_code():
            tools = self._game.tools_of(self._seat)
        self._offer(tools)
        if not has_turn:
            self.trajectory.messages += messages  # for readers of the trajectory
            raise _NeverMovedError
        return messages

    async def _hear(self, text: str) -> str | Done:
        async with self._one_at_a_time:
            if not await self._table.comes(self._seat):
                return Done()
            await self.ask(self._game.move, self._seat, text, what="move()")
            return await self._again()

    async def _make(self, call_it: Callable[[], Any], what: str) -> Any:
        async with self._one_at_a_time:
            if not await self._table.comes(self._seat):
                return Done()
            return await self._game.in_turn(lambda: self._timed(call_it, what), self._again)

    async def _again(self) -> str | Done:
        """Let the other seats move. Return the next observation of this seat."""
        self._table.give(self._game.mover)
        if not await self._table.comes(self._seat):
            return Done()
        seen = await self.ask(self._game.observe, self._seat, what="observe()")
        return text_of(self._game, "observe", "observe()", seen)

    async def finish(self) -> None:
        """See Episode."""
        own, self._game.seat = self._game.seat, self._seat
        folder, self._game.workdir = self._game.workdir, self.workdir
        try:
            await super().finish()
        finally:
            self._game.seat, self._game.workdir = own, folder


@dataclass(slots=True, kw_only=True)
class _Player:
    """The player at a seat, its episode and its result."""

    agent: Agent
    episode: _Seat
    stop_reason: StopReason = "env"

    @property
    def trajectory(self) -> Trajectory:
        return self.episode.trajectory


class Match:
    """Implements Agent: plays the scenario's seat while other agents play the other seats."""

    def __init__(
        self, own: Agent, opponent: Callable[[str], Agent], seats: tuple[str, ...], *, learns: bool
    ) -> None:
        """With `learns`, the opponents' trajectories are returned by `siblings`."""
        self._own = own
        self._opponent = opponent
        self._seats = seats
        self._learns = learns
        self._others: dict[str, _Player] = {}

    async def play(self, episode: Episode) -> StopReason:
        game = episode.env
        assert isinstance(game, Game)
        table = _Table(game.seat)
        own = self._sit(game, game.seat, self._own, episode, table)
        for seat in _but(self._seats, game.seat):
            self._others[seat] = self._sit(game, seat, self._opponent(seat), episode, table)
        players = {game.seat: own, **self._others}
        try:
            await _all(self._play(seat, player, table) for seat, player in players.items())
        finally:
            table.end()  # wakes all that wait
        if any(player.stop_reason == "max_turns" for player in players.values()):
            for player in players.values():
                player.stop_reason = "max_turns"
        for player in self._others.values():
            player.trajectory.stop_reason = player.stop_reason
            player.agent.record(player.trajectory)
        if self._learns:
            for player in self._others.values():
                await player.episode.finish()
        return own.stop_reason

    def _sit(self, game: Game, seat: str, agent: Agent, episode: Episode, table: _Table) -> _Player:
        table.sit(seat, agent)
        return _Player(agent=agent, episode=_Seat(game, seat, episode, table))

    async def _play(self, seat: str, player: _Player, table: _Table) -> None:
        try:
            player.stop_reason = await player.agent.play(player.episode)
        except _NeverMovedError:
            return
        table.leave(seat)
        if seat in self._others and not self._learns:
            table.expect(seat, False)  # engine steps need not wait for this agent to end

    def siblings(self, trajectory: Trajectory) -> list[Trajectory]:
        """Return the trajectories of other seats to train on, in the order of the seats.

        `trajectory` is that of the scenario's seat. If it failed, the others fail too.
        """
        found = []
        for seat in _but(self._seats, trajectory.scenario.data[SEAT]) if self._learns else ():
            player = self._others.get(seat)
            t = player.trajectory if player else None
            t = t or Trajectory(scenario=at_seat(trajectory.scenario, seat))
            t.duration = trajectory.duration
            t.logs = [storable(text) for text in t.logs]
            t.crash = t.crash and storable(t.crash)
            if trajectory.failed:
                t.reward, t.stop_reason = None, trajectory.stop_reason
                t.error, t.traceback = trajectory.error, trajectory.traceback
            found.append(t)
        return found

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. The cost includes that of the opponents."""
        trajectory.usd = 0.0
        self._own.record(trajectory)
        for player in self._others.values():
            player.agent.record(player.trajectory)
            if not self._learns:
                trajectory.usd += player.trajectory.usd

    def close(self) -> None:
        self._own.close()
        for player in self._others.values():
            player.agent.close()


async def _all(plays: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Play concurrently. After all have ended, raise the first exception."""
    tasks = [asyncio.ensure_future(play) for play in plays]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    errors = [task.exception() for task in tasks if not task.cancelled()]
    if error := next((e for e in errors if e), None):
        raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedAgents:
    """Implement AgentFactory for a game."""

    policy: AgentFactory
    opponents: AgentFactory  # in self-play, the same
    seats: tuple[str, ...]
    learns: bool = False  # whether the opponents' trajectories are trained on

    def open(self, seed: int) -> Match:
        """See AgentFactory. Each opponent's seed is derived from `seed`."""

        def opponent(seat: str) -> Agent:
            return self.opponents.open(seed_of(seed, seat))

        return Match(self.policy.open(seed), opponent, self.seats, learns=self.learns)


def at_seat(scenario: Scenario, seat: str) -> Scenario:
    """Return the scenario for another seat of the same game."""
    game = scenario.id.removesuffix(f"-{scenario.data[SEAT]}")
    return replace(scenario, id=f"{game}-{seat}", data={**scenario.data, SEAT: seat})


def _but(seats: tuple[str, ...], own: str) -> list[str]:
    return [seat for seat in seats if seat != own]
