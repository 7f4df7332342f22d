"""The env's side of one rollout: calls of its methods under deadlines, and their results."""

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

SHORTEST_WAIT = 0.1  # seconds that a call gets even if the episode's time is used up


class _Clock:
    """The time that an env has left."""

    def __init__(self, left: float) -> None:
        self.left = left  # seconds
        self._busy = 0  # calls of the env in progress
        self._since = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count the env's time. Concurrent calls count once."""
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
    """An episode of an env. The env's time counts against its deadlines; the engine's does not.

    The env's actions are recorded as steps of the trajectory. Its exceptions are passed on.
    Raises DeadlineError if it is too slow.
    """

    shares_slot = False  # whether another player of its game holds the slot of both

    def __init__(
        self,
        env: Env,
        trajectory: Trajectory,
        beside: Episode | None = None,
        weights: RewardConfig | None = None,
    ) -> None:
        """`beside` is an episode of the same env, whose time and weights this one shares."""
        self.env = env
        self._weights = beside._weights if beside else weights
        self.trajectory = trajectory
        self._lifetime = Lifetime(env)
        self._offered: list[Tool] = []  # known after the start
        self._clock = beside._clock if beside else _Clock(env.episode_timeout)
        self.workdir: Path | None = None  # working directory of a user's agent
        self._folders: list[Path] = beside._folders if beside else []  # removed with the episode

    @property
    def has_tools(self) -> bool:
        """True if the episode offers any tool."""
        return bool(self._offered)

    @property
    def tools(self) -> list[Tool]:
        """The tools that the episode offers; known after the start."""
        return list(self._offered)

    @property
    def side_effects(self) -> list[str]:
        """The names of the offered tools that may change data that outlives the episode."""
        return [t.name for t in self._offered if t.writes] if self.env.has_side_effects else []

    def withhold_writes(self) -> list[str]:
        """Stop offering the tools of `side_effects`. Return their names.

        A call of such a tool is refused like that of an unknown tool and does not reach the env.
        """
        withheld = self.side_effects
        self._offered = [tool for tool in self._offered if tool.name not in withheld]
        self.trajectory.tools = [tool.schema() for tool in self._offered]
        return withheld

    async def start(self) -> list[Message]:
        """Start the env. Return the messages with which the episode begins."""
        with self._clock.running():
            started = await self._lifetime.start(max(self._clock.left, SHORTEST_WAIT))
        with user_code():
            tools = self.env.tools()
        self._offer(tools)
        return opening_of(self.env, "start", started)

    async def set_up(self, method: Callable[[], Any]) -> None:
        """Start with another method of the env. The caller then asks for the opening."""
        with self._clock.running():
            await self._lifetime.start(max(self._clock.left, SHORTEST_WAIT), method)

    async def work_in(self, folder: Path, workdir: Path | None) -> None:
        """Let the env fill the working directory of the user's agent, if it is the episode's own.

        `folder` contains `workdir`, and is removed once the episode is scored and closed.
        Raises UsageError if the env's files cannot be written, and the env's exceptions.
        """
        self._folders.append(folder)
        if workdir is None:
            return
        self.workdir = workdir
        if not self.shares_slot:  # in a game, only the seat that opened the env
            self.env.workdir = workdir
        if type(self.env).files is not Env.files:
            given = await self.ask(self.env.files, what="files()")
            files = checked_files(type(self.env), given)
            await asyncio.to_thread(write_files, type(self.env), workdir, files)

    async def reply(self, text: str, *, turn: int) -> str | Done:
        """Return the env's answer to a turn without tool calls."""
        step = self._begin(Step(turn=turn, said=text))
        answer = await self._hear(text)
        if isinstance(answer, Done):
            return answer
        step.result = reply_of(self.env, answer)
        return step.result

    async def call_tool(self, name: str, arguments: dict[str, Any], *, turn: int) -> Message | Done:
        """Return the result of a tool call; `is_error` marks a refusal or invalid arguments."""
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
        """Tell the env the number of calls of the next turn that will reach it."""
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
        """Return a function that makes the call. Raises InvalidCallError for an unknown tool."""
        if not self._offers(name):
            known = ", ".join(tool.name for tool in self._offered)
            raise InvalidCallError(f"there is no tool {name!r:.200}; there are {known}")
        return caller(self.env, name, arguments)

    def _hear(self, text: str) -> Awaitable[Any]:
        """Return the env's answer to a text."""
        return self.ask(self.env.reply, text, what="reply()")

    def _make(self, call_it: Callable[[], Any], what: str) -> Awaitable[Any]:
        """Return the result of a tool call, after the moves of other players in a game."""
        return self._timed(in_its_turn(self.env, call_it), what)

    def _timed(self, call_it: Callable[[], Any], what: str) -> Awaitable[Any]:
        """Run a call within the time of a tool."""
        limit = max(min(self.env.tool_timeout, self._clock.left), SHORTEST_WAIT)
        return call(call_it, seconds=limit, what=what, counting=self._clock.running())

    async def refuse(self, why: str, *, turn: int) -> Message:
        """Record a malformed or cut-off call. Return the error message for the agent."""
        self._begin(Step(turn=turn, tool="", result=why, is_error=True))
        self.trajectory.num_invalid += 1
        return {"role": "tool", "content": why, "is_error": True}

    async def finish(self) -> None:
        """Score the finished trajectory and set its reward."""
        env, trajectory = self.env, self.trajectory
        if type(env).judge_context is not Env.judge_context:  # the default gives no context
            context = await self.ask(env.judge_context, what="judge_context()")
            trajectory.judge_context = text_of(
                env, "judge_context", "judge_context()", str(context)
            )
        score = reward_of(env, await self.ask(env.score, trajectory, what="score()"))
        trajectory.metrics |= metrics_of(env)
        trajectory.reward_parts.env = score
        set_reward(trajectory, self._weights)

    async def close(self) -> None:
        """Close the env in the task that opened it, within the time of a tool.

        Then remove the folders of its agents.
        """
        try:
            await self._lifetime.close()
        finally:
            while self._folders:
                if why := await remove(folder := self._folders.pop()):
                    self.trajectory.logs.append(f"the agent's folder {folder} is left: {why}")

    def _begin(self, step: Step) -> Step:
        """Record a step, in the order in which the env receives them. Its result is set later."""
        self.trajectory.steps.append(step)
        return step

    def ask(self, method: Callable[..., Any], *args: Any, what: str) -> Awaitable[Any]:
        """Run a method of the env within the time that the episode has left."""
        seconds = max(self._clock.left, SHORTEST_WAIT)
        return call(method, *args, seconds=seconds, what=what, counting=self._clock.running())


def caller(env: Env, name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
    """Return a function that calls a tool. Raises InvalidCallError for invalid arguments."""
    if spec := tools_of(type(env)).get(name):
        return partial(getattr(env, spec.method), **spec.parse(arguments))
    return partial(env.call_tool, name, arguments)


def in_its_turn(env: Env, call_it: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap a tool call for a game of one player, whose scripted opponents move after it."""
    return partial(env.called, call_it) if isinstance(env, Game) else call_it


@cache
def _own_tools(env_class: type[Env]) -> list[Tool]:
    """Return the tools that are methods, checked once. Raises PlacedError."""
    return tools_in(env_class, offered_by(env_class))
