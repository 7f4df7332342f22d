"""Play episodes for the checks, and record their outcomes."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from art_cli.envs.base import Done, Env, NoServices
from art_cli.preflight.envs.players import Repeater
from art_cli.preflight.envs.watch import Stall
from art_cli.rollout.agents.scripted import Player
from art_cli.rollout.episode import Episode
from art_cli.system.scratch import make_scratch
from art_cli.system.starvation import FairClock
from art_cli.types import Message, Scenario, Trajectory

MakePlayer = Callable[[Env], Player]


STARVED = 0.5  # minimum share of processor time in a call, or its missed deadline proves nothing
# Patterns in error messages of missed deadlines: ours, servers', libraries'.
LATE = re.compile(r"time(d[ -]?)?[ -]?out|DeadlineError|within [\d.e+]+ s\b", re.I)


class NotCalledError(Exception):
    """A player called a tool that may write to the user's data, without --allow-writes."""


@dataclass(slots=True, kw_only=True)
class Played:
    """One played episode with its measurements."""

    trajectory: Trajectory
    opening: list[Message] = field(default_factory=list)
    turns: list[str] = field(default_factory=list)  # the player's turns
    error: Exception | None = None  # the env's exception
    slowest: dict[str, float] = field(default_factory=dict)  # "tool look()" -> fair seconds
    files: dict[str, str] = field(default_factory=dict)  # path -> SHA-256, for an agent
    during: str = ""  # the env's method that was called last
    data_changed: bool = False  # the env wrote to its scenario's data
    was_starved: bool = False  # the last call often waited for a processor
    stalls: dict[str, Stall] = field(default_factory=dict)  # of an episode played alone
    withheld: list[str] = field(
        default_factory=list
    )  # tools that are not called because they may write

    @property
    def is_late(self) -> bool:
        """True if a deadline was missed, which is no error of the env on a busy machine."""
        return self.error is not None and is_late(repr(self.error))

    @property
    def reward(self) -> float | None:
        """The env's reward."""
        return self.trajectory.reward

    def repeater(self, env: Env) -> Repeater:
        """Return a player that repeats this episode's turns; usable as a `MakePlayer`."""
        return Repeater(self.turns)

    def outcome(self) -> dict[str, Any]:
        """Return, as JSON, everything that must be equal if the same turns are repeated."""
        t = self.trajectory
        seen = {"opening": self.opening, "steps": [asdict(step) for step in t.steps]}
        seen |= {"stop_reason": t.stop_reason, "metrics": t.metrics}
        seen |= {"reward": t.reward, "judge_context": t.judge_context}
        return json.loads(json.dumps(seen | {"error": self.error and repr(self.error)}))


def is_late(error: str) -> bool:
    """Return whether an error says that a deadline was missed."""
    return LATE.search(error) is not None


class TimedEpisode(Episode):
    """Episode that times each call of the env, and offers only allowed tools."""

    def __init__(self, env: Env, played: Played, allow_writes: bool, *, has_folder: bool) -> None:
        super().__init__(env, played.trajectory)
        self._played = played
        self._allow_writes = allow_writes
        self._has_folder = has_folder

    @property
    def has_tools(self) -> bool:
        """See `Episode`. Calls of withheld tools must still be parsed as calls, not as text."""
        return super().has_tools or bool(self._played.withheld)

    async def start(self) -> list[Message]:
        with self._timing("start()"):
            self._played.opening = await super().start()
        self._played.withheld = [] if self._allow_writes else self.withhold_writes()
        if self._has_folder:
            folder = make_scratch("check")
            with self._timing("files()"):
                await self.work_in(folder, folder)
            self._played.files = await asyncio.to_thread(_digests, folder)
        return self._played.opening

    async def reply(self, text: str, *, turn: int) -> str | Done:
        with self._timing("reply()"):
            return await super().reply(text, turn=turn)

    async def call_tool(self, name: str, arguments: dict[str, Any], *, turn: int) -> Message | Done:
        if name in self._played.withheld:
            raise NotCalledError(name)
        with self._timing(f"tool {name}()"):
            return await super().call_tool(name, arguments, turn=turn)

    async def finish(self) -> None:
        with self._timing("score()"):
            await super().finish()

    @contextmanager
    def _timing(self, what: str) -> Iterator[None]:
        began, clock, slowest = time.monotonic(), FairClock(0.0), self._played.slowest
        self._played.during = what.removeprefix("tool ").removesuffix("()")
        try:
            yield
        finally:
            seconds = clock.seconds()
            self._played.was_starved = seconds < STARVED * (time.monotonic() - began)
            slowest[what] = max(seconds, slowest.get(what, 0.0))


async def play_one(
    env_class: type[Env],
    settings: Any,
    scenario: Scenario,
    make_player: MakePlayer,
    allow_writes: bool = True,
    *,
    has_folder: bool = False,
) -> Played:
    """Play an episode like `rollout` does. Errors are stored in `error`, not raised.

    Without `allow_writes`, no tool is called whose changes would outlive the episode. `has_folder`
    plays like a user's own agent, which has a folder for the episode.
    """
    played = Played(trajectory=Trajectory(scenario=scenario))
    data = copy.deepcopy(scenario.data)
    episode = None
    try:
        env = env_class(scenario, settings)
        env.services = NoServices()
        episode = TimedEpisode(env, played, allow_writes, has_folder=has_folder)
        player = make_player(env)
        played.turns = player.turns
        played.trajectory.stop_reason = await player.play(episode)
        player.record(played.trajectory)
        await episode.finish()
    except Exception as e:
        played.error = e
    if episode is not None:
        try:
            await episode.close()
        except Exception as e:
            played.error = played.error or e
    played.data_changed = scenario.data != data
    return played


def _digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 digest of each file below a folder, by relative path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }
