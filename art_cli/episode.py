"""The env's side of one rollout: its methods, under its deadlines, and what they come to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from art_cli.deadline import call
from art_cli.env import Done, Env
from art_cli.tools import ToolError, schemas_of, tools_of
from art_cli.types import Message, Trajectory

SHORTEST_WAIT = 0.1  # seconds that a call gets at the very end of its episode's time


class Episode:
    """An env whose time counts against its deadlines; the engine's does not.

    Whatever the env raises goes through: DeadlineError where it was too slow.
    """

    def __init__(self, env: Env, trajectory: Trajectory) -> None:
        self.env = env
        self.trajectory = trajectory
        self._tools = tools_of(type(env))
        self._left = env.episode_timeout
        self._busy = 0  # calls of the env that go on at this moment

    @property
    def has_tools(self) -> bool:
        """Whether a turn can call anything."""
        return bool(self._tools)

    async def start(self) -> list[Message]:
        """The messages that the episode begins with."""
        self.trajectory.tools = schemas_of(type(self.env))
        return opening(self.env, await self._timed(self.env.start, what="start()"))

    async def reply(self, text: str) -> str | Done:
        """What comes back to a turn that called no tool."""
        answer = await self._timed(self.env.reply, text, what="reply()")
        if not isinstance(answer, str | Done):
            raise TypeError(f"reply() returned {answer!r}; expected text or Done()")
        return answer

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """What a tool gives; a refusal or bad arguments are a text that begins with `error: `."""
        try:
            result = await self._run_tool(name, arguments)
        except ToolError as e:
            return f"error: {e}"
        return result if isinstance(result, Done) else str(result)

    async def finish(self) -> None:
        """Score the trajectory, which holds all that was said by now."""
        env, trajectory = self.env, self.trajectory
        context = await self._timed(env.judge_context, what="judge_context()")
        trajectory.judge_context = str(context)
        reward = await self._timed(env.score, trajectory, what="score()")
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"score() returned {reward}; a reward must be a finite number")
        trajectory.metrics |= {name: float(value) for name, value in env.metrics.items()}
        trajectory.reward = None if reward is None else float(reward)

    async def _run_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        spec = self._tools.get(name)
        if spec is None:
            raise ToolError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
        parsed, method = spec.parse(arguments), getattr(self.env, name)
        limit = max(min(self.env.tool_timeout, self._left), SHORTEST_WAIT)
        with self._clock():
            return await call(partial(method, **parsed), seconds=limit, what=f"tool {name}()")

    async def _timed(self, method: Callable[..., Any], *args: Any, what: str) -> Any:
        with self._clock():
            seconds = max(self._left, SHORTEST_WAIT)
            return await call(method, *args, seconds=seconds, what=what)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        """Calls that go on at the same time take the episode's time once."""
        if self._busy == 0:
            self._since = time.monotonic()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            if self._busy == 0:
                self._left -= time.monotonic() - self._since


def opening(env: Env, started: str | list[Message]) -> list[Message]:
    """The messages that an episode begins with. Raises TypeError where `start` gave none."""
    if isinstance(started, list) and started and all("role" in m for m in started):
        return started
    if not isinstance(started, str):
        raise TypeError(f"start() returned {started!r}; expected text or a list of messages")
    messages: list[Message] = [{"role": "user", "content": started}]
    if env.system:
        messages.insert(0, {"role": "system", "content": env.system})
    return messages
