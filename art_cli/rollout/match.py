"""A game with a player at each seat: the policy at one or at all of them.

    seat "first"     8 are left. -> 2                       5 are left. -> 1
    seat "second"                   6 are left. -> 1                       4 are left. ...

Each seat has a conversation of its own, and where the policy plays all of them (self-play), a
trajectory of its own, trained on nothing but what was sampled at that seat.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from art_cli.envs.base import seed_of
from art_cli.envs.game import SEAT, Game
from art_cli.models.turns import read_turn
from art_cli.rollout.agent import Agent, AgentFactory, ContextFull, TurnAgent
from art_cli.rollout.episode import Episode, opening, said_by
from art_cli.types import Message, Scenario, Step, StopReason, Trajectory


@dataclass(slots=True, kw_only=True)
class _Player:
    """Who sits at a seat, and what came of it there."""

    agent: TurnAgent
    trajectory: Trajectory
    stop_reason: StopReason = "env"
    step: Step | None = None  # its last, whose result it reads when its turn comes again


class Match:
    """Implements Agent: plays the scenario's seat, and has the other seats played beside it."""

    def __init__(
        self, own: Agent, opponent: Callable[[str], Agent], seats: tuple[str, ...], *, learns: bool
    ) -> None:
        """`learns`: whether what the opponents do is kept, as `siblings`."""
        assert isinstance(own, TurnAgent)
        self._own = own
        self._opponent = opponent
        self._seats = seats
        self._learns = learns
        self._others: dict[str, _Player] = {}

    async def play(self, episode: Episode) -> StopReason:
        game = episode.env
        assert isinstance(game, Game)
        scenario = episode.trajectory.scenario
        own = _Player(agent=self._own, trajectory=episode.trajectory)
        for seat in _but(self._seats, game.seat):
            agent, trajectory = self._opponent(seat), Trajectory(scenario=at_seat(scenario, seat))
            assert isinstance(agent, TurnAgent)
            self._others[seat] = _Player(agent=agent, trajectory=trajectory)
        players = {game.seat: own, **self._others}
        for player in players.values():
            player.agent.begin()
            player.agent.expect(player is own)  # steps wait for one of the game at a time
        await episode.set_up(game.set_up)
        await self._play(episode, game, players)
        for seat, player in players.items():
            if not player.trajectory.messages:  # the game was over before; whoever reads it may see
                await self._observed(episode, game, seat, player)
        for player in self._others.values():
            player.trajectory.stop_reason = player.stop_reason
            player.agent.record(player.trajectory)
        if self._learns:
            for seat in self._others:
                await self._finish(episode, game, seat)
        return own.stop_reason

    async def _play(self, episode: Episode, game: Game, players: dict[str, _Player]) -> None:
        """Let the players move until the game is over, or one of them cannot."""
        before, moves = players[game.seat], game.max_turns
        while (seat := game.mover) is not None:
            player = players[seat]
            if player is not before:
                player.agent.expect(True)  # first: a step must not go ahead between them
                before.agent.expect(False)
                before = player
            messages = await self._observed(episode, game, seat, player)
            if player.trajectory.num_turns == moves:
                for each in players.values():
                    each.stop_reason = "max_turns"
                return
            try:
                text = await player.agent.act(messages)
            except ContextFull:
                player.stop_reason = "context"
                return
            player.trajectory.messages.append({"role": "assistant", "content": text})
            said = (player.agent.turn or read_turn(text)).said
            player.step = Step(turn=player.trajectory.num_turns, said=said)
            player.trajectory.steps.append(player.step)
            await episode.ask(game.move, seat, said, what="move()")

    async def _observed(
        self, episode: Episode, game: Game, seat: str, player: _Player
    ) -> list[Message]:
        """Return what is new to a player whose turn it is."""
        if player.step is None:
            messages = opening(game, await episode.ask(game.opening, seat, what="observe()"))
        else:
            text = said_by("observe()", await episode.ask(game.observe, seat, what="observe()"))
            player.step.result = text
            messages: list[Message] = [{"role": "user", "content": text}]
        player.trajectory.messages += messages
        return messages

    async def _finish(self, episode: Episode, game: Game, seat: str) -> None:
        """Score another seat, as the episode itself is scored."""
        own, trajectory = game.seat, episode.trajectory
        game.seat, episode.trajectory = seat, self._others[seat].trajectory
        try:
            await episode.finish()
        finally:
            game.seat, episode.trajectory = own, trajectory

    def siblings(self, trajectory: Trajectory) -> list[Trajectory]:
        """Return the trajectories of the other seats that are learned from, in the seats' order.

        `trajectory` is that of the seat itself: where the game failed, it failed for all.
        """
        found = []
        for seat in _but(self._seats, trajectory.scenario.data[SEAT]) if self._learns else ():
            player = self._others.get(seat)
            t = player.trajectory if player else None
            t = t or Trajectory(scenario=at_seat(trajectory.scenario, seat))
            t.duration = trajectory.duration
            if trajectory.failed:
                t.reward, t.error = None, trajectory.error
                t.stop_reason = trajectory.stop_reason
            found.append(t)
        return found

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. What the opponents cost is in it."""
        trajectory.usd = 0.0
        self._own.record(trajectory)
        if not self._learns:
            for player in self._others.values():
                player.agent.record(player.trajectory)
                trajectory.usd += player.trajectory.usd

    def settle(self, trajectory: Trajectory) -> None:
        """See Agent."""

    def close(self) -> None:
        self._own.close()
        for player in self._others.values():
            player.agent.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedAgents:
    """Implement AgentFactory for a game."""

    policy: AgentFactory
    opponents: AgentFactory  # in self-play, the same
    seats: tuple[str, ...]
    learns: bool = False  # whether the opponents are trained too

    def open(self, seed: int) -> Match:
        """See AgentFactory. Each opponent draws from a seed of its own, which follows from it."""

        def opponent(seat: str) -> Agent:
            return self.opponents.open(seed_of(seed, seat))

        return Match(self.policy.open(seed), opponent, self.seats, learns=self.learns)


def at_seat(scenario: Scenario, seat: str) -> Scenario:
    """Return the scenario of another seat of the same game."""
    game = scenario.id.removesuffix(f"-{scenario.data[SEAT]}")
    return replace(scenario, id=f"{game}-{seat}", data={**scenario.data, SEAT: seat})


def _but(seats: tuple[str, ...], own: str) -> list[str]:
    return [seat for seat in seats if seat != own]
