"""The env's side of one rollout: its methods, under its deadlines, and what they come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from art_cli.config.sections.reward import RewardConfig
from art_cli.envs.base import Done, Env
from art_cli.envs.files import checked_files, write_files
from art_cli.envs.game import Game
from art_cli.envs.returned import (
    metrics_of,
    opening_of,
    reply_of,
    reward_of,
    text_of,
    tool_result,
    tools_in,
)
from art_cli.envs.tools import InvalidCallError, Tool, ToolError, offered_by, tools_of
from art_cli.reward import set_reward
from art_cli.rollout.lifetime import Lifetime
from art_cli.system.deadline import call, user_code
from art_cli.system.scratch import remove
from art_cli.types import Message, Step, Trajectory

SHORTEST_WAIT = 0.1  # seconds that a call gets at the very end of its episode's time


class _Clock:
    """The time that an env has left."""

    def __init__(self, left: float) -> None:
        self.left = left  # seconds
        self._busy = 0  # calls of the env that go on at this moment
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the env's time. Calls that go on at the same time count once."""
        if self._busy == 0:
            self._since = time.monotonic()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if self._busy == 0:
                self.left -= time.monotonic() - self._since


class Episode:
    """An env whose time counts against its deadlines; the engine's does not.

    What the env does becomes the trajectory's steps. Whatever it raises goes through: DeadlineError
    where it was too slow.
    """

    shares_slot = False  # whether another player of its game holds the slot of both

    def __init__(
        self,
        env: Env,
        trajectory: Trajectory,
        beside: Episode | None = None,
        weights: RewardConfig | None = None,
    ) -> None:
        """`beside` is the episode of the same env whose time and weights this one shares."""
        self.env = env
        self._weights = beside._weights if beside else weights
        self.trajectory = trajectory
        self._lifetime = Lifetime(env)
        self._offered: list[Tool] = []  # known once it has begun
        self._clock = beside._clock if beside else _Clock(env.episode_timeout)
        self.workdir: Path | None = None  # where an agent of the user's works
        self._folders: list[Path] = beside._folders if beside else []  # that end with the episode

    @property
    def has_tools(self) -> bool:
        """True if a turn can call anything."""
        return bool(self._offered)

    @property
    def tools(self) -> list[Tool]:
        """The tools that the episode offers; known once it has begun."""
        return list(self._offered)

    @property
    def side_effects(self) -> list[str]:
        """The names of the offered tools that may change what outlives the episode."""
        return [t.name for t in self._offered if t.writes] if self.env.has_side_effects else []

    def withhold_writes(self) -> list[str]:
        """Stop offering the tools of `side_effects`, and return their names.

        A call of one is refused before it reaches the env, as that of an unknown tool.
        """
        withheld = self.side_effects
        self._offered = [tool for tool in self._offered if tool.name not in withheld]
        self.trajectory.tools = [tool.schema() for tool in self._offered]
        return withheld

    async def start(self) -> list[Message]:
        """Return the messages that the episode begins with."""
        with self._clock.running():
            started = await self._lifetime.start(max(self._clock.left, SHORTEST_WAIT))
        with user_code():
            tools = self.env.tools()
        self._offer(tools)
        return opening_of(self.env, "start", started)

    async def set_up(self, method: Callable[[], Any]) -> None:
        """Begin with another method of the env than `start`: who calls it asks for the rest."""
        with self._clock.running():
            await self._lifetime.start(max(self._clock.left, SHORTEST_WAIT), method)

    async def work_in(self, folder: Path, workdir: Path | None) -> None:
        """Let the env fill the folder in which the agent of the user's works, if it is its own.

        `folder` holds `workdir`, and is removed once the episode has its score and is closed.
        Raises UsageError where the env's files cannot be written, and what the env raises.
        """
        self._folders.append(folder)
        if workdir is None:
            return
        self.workdir = workdir
        if not self.shares_slot:  # of the seats of a game, the one that is played
            self.env.workdir = workdir
        if type(self.env).files is not Env.files:
            given = await self.ask(self.env.files, what="files()")
            files = checked_files(type(self.env), given)
            await asyncio.to_thread(write_files, type(self.env), workdir, files)

    async def reply(self, text: str, *, turn: int) -> str | Done:
        """Return what comes back to a turn that called no tool."""
        step = self._begin(Step(turn=turn, said=text))
        answer = await self._hear(text)
        if isinstance(answer, Done):
            return answer
        step.result = reply_of(self.env, answer)
        return step.result

    async def call_tool(self, name: str, arguments: dict[str, Any], *, turn: int) -> Message | Done:
        """Return what a tool gives; `is_error` marks a refusal, or arguments that do not fit."""
        step = self._begin(Step(turn=turn, tool=name, arguments=arguments))
        step.is_unknown = not self._offers(name)
        try:
            result = await self._make(self._caller(name, arguments), f"tool {name}()")
        except ToolError as e:
            self.trajectory.num_invalid += isinstance(e, InvalidCallError)
            step.result, step.is_error = tool_result(self.env, name, f"error: {e}"), True
            return {"role": "tool", "name": name, "content": step.result, "is_error": True}
        if isinstance(result, Done):
            return result
        step.result = tool_result(self.env, name, result)
        return {"role": "tool", "name": name, "content": step.result}

    def announce(self, names: list[str]) -> None:
        """Let the env know how many calls of the next turn will reach it."""
        offered = {tool.name for tool in self._offered}
        self.env.calls_in_turn = sum(name in offered for name in names)

    def _offer(self, tools: Any) -> None:
        env_class = type(self.env)
        is_own = tools == offered_by(env_class)
        self._offered = _own_tools(env_class) if is_own else tools_in(env_class, tools)
        self.trajectory.tools = [tool.schema() for tool in self._offered]

    def _offers(self, name: str) -> bool:
        return any(tool.name == name for tool in self._offered)

    def _caller(self, name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return what makes the call. Raise InvalidCallError where there is no such tool."""
        if not self._offers(name):
            known = ", ".join(tool.name for tool in self._offered)
            raise InvalidCallError(f"there is no tool {name!r:.200}; there are {known}")
        return caller(self.env, name, arguments)

    def _hear(self, text: str) -> Awaitable[Any]:
        """Return what the env answers to words."""
        return self.ask(self.env.reply, text, what="reply()")

    def _make(self, call_it: Callable[[], Any], what: str) -> Awaitable[Any]:
        """Return what comes back to a call."""
        return self._timed(in_its_turn(self.env, call_it), what)

    def _timed(self, call_it: Callable[[], Any], what: str) -> Awaitable[Any]:
        """Return what a call gives, within a tool's time."""
        limit = max(min(self.env.tool_timeout, self._clock.left), SHORTEST_WAIT)
        return call(call_it, seconds=limit, what=what, counting=self._clock.running())

    async def refuse(self, why: str, *, turn: int) -> Message:
        """Return what comes back to a call that cannot be made: it was malformed or cut off."""
        self._begin(Step(turn=turn, tool="", result=why, is_error=True))
        self.trajectory.num_invalid += 1
        return {"role": "tool", "content": why, "is_error": True}

    async def finish(self) -> None:
        """Score the trajectory, which holds all that was said by now. See also `set_reward`."""
        env, trajectory = self.env, self.trajectory
        if type(env).judge_context is not Env.judge_context:  # which says nothing
            context = await self.ask(env.judge_context, what="judge_context()")
            trajectory.judge_context = text_of(
                env, "judge_context", "judge_context()", str(context)
            )
        score = reward_of(env, await self.ask(env.score, trajectory, what="score()"))
        trajectory.metrics |= metrics_of(env)
        trajectory.reward_parts.env = score
        set_reward(trajectory, self._weights)

    async def close(self) -> None:
        """Close the env, in the task that opened it. Its deadline is a tool's.

        Then remove the folders of its agents.
        """
        try:
            await self._lifetime.close()
        finally:
            while self._folders:
                if why := await remove(folder := self._folders.pop()):
                    self.trajectory.logs.append(f"the agent's folder {folder} is left: {why}")

    def _begin(self, step: Step) -> Step:
        """Record a step in the order in which the env gets to it; its result follows."""
        self.trajectory.steps.append(step)
        return step

    def ask(self, method: Callable[..., Any], *args: Any, what: str) -> Awaitable[Any]:
        """Return what a method of the env gives, within the time that the episode has left."""
        seconds = max(self._clock.left, SHORTEST_WAIT)
        return call(method, *args, seconds=seconds, what=what, counting=self._clock.running())


def caller(env: Env, name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """Return what makes a call of a tool. Raises InvalidCallError where it does not fit."""
    if spec := tools_of(type(env)).get(name):
        return partial(getattr(env, spec.method), **spec.parse(arguments))
    return partial(env.call_tool, name, arguments)


def in_its_turn(env: Env, call_it: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a call of a game of one player, too: the others move behind it."""
    return partial(env.called, call_it) if isinstance(env, Game) else call_it


@cache
def _own_tools(env_class: type[Env]) -> list[Tool]:
    """Return the tools that are methods, checked once. Raises PlacedError."""
    return tools_in(env_class, offered_by(env_class))
