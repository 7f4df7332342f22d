"""One env and one agent make one trajectory: the turn loop."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from art_cli.deadline import DeadlineError, call
from art_cli.engines.base import Session
from art_cli.env import Done, Env
from art_cli.errors import ArtError, blame
from art_cli.render import Conversation, Renderer, parse_tool_calls, spoken
from art_cli.tools import ToolError, schemas_of, tools_of
from art_cli.types import Completion, Message, Scenario, Sequence, ToolCall, Trajectory

SHORTEST_WAIT = 0.1  # seconds that a call gets at the very end of its episode's time


class ContextFull(Exception):
    """The conversation has no room for another turn."""


class Agent(Protocol):
    """Who answers in an episode."""

    async def act(self, messages: list[Message]) -> str:
        """The next assistant turn, given the messages that are new since the last one."""
        ...

    def record(self, trajectory: Trajectory) -> None:
        """Write into the trajectory what was sampled so far."""
        ...


class PolicyAgent:
    """The policy behind an engine: token ids in, token ids out."""

    def __init__(self, renderer: Renderer, session: Session, max_model_len: int) -> None:
        self.conversation = Conversation(renderer)
        self.completions: list[Completion] = []
        self._session = session
        self._max_model_len = max_model_len

    async def act(self, messages: list[Message]) -> str:
        """Sample a turn. Raises ContextFull where there is no room for one token."""
        self.conversation.add_messages(messages)
        ids = self.conversation.ids
        if len(ids) >= self._max_model_len:
            raise ContextFull
        completion = await self._session.generate(ids)
        self.completions.append(completion)
        return self.conversation.add_completion(completion)

    def record(self, trajectory: Trajectory) -> None:
        """See Agent. What was to be read next, where the context was full, is left out."""
        sampled = [s for s in self.conversation.sequences if s.num_sampled]
        trajectory.sequences = [_as_read(s) for s in sampled]
        trajectory.policy_versions = [c.policy_version for c in self.completions]
        cut = any(c.finish_reason == "length" for c in self.completions)
        trajectory.truncated = cut or trajectory.stop_reason == "context"


def _as_read(s: Sequence) -> Sequence:
    end = len(s.mask) - s.mask[::-1].index(1)
    return Sequence(ids=s.ids[:end], mask=s.mask[:end], engine_logprobs=s.engine_logprobs[:end])


async def rollout(
    env_class: type[Env],
    settings: Any,
    scenario: Scenario,
    agent: PolicyAgent,
) -> Trajectory:
    """Play one episode with the policy.

    A failure of the env (an exception, a missed deadline) gives reward None and says why in
    `error`; bad play never raises. Raises EngineError where the engine fails.
    """
    trajectory = Trajectory(scenario=scenario)
    began = time.monotonic()
    await _play(env_class, settings, scenario, agent, trajectory)
    agent.record(trajectory)  # score() saw it too, unless it was never reached
    trajectory.duration = time.monotonic() - began
    return trajectory


def play(env: Env, answer: Callable[[], str]) -> list[Message]:
    """The messages of a whole episode in which `answer` gives each assistant turn.

    For demonstrations and tests. Raises what the env raises.
    """

    class Scripted:
        turns = 0

        async def act(self, messages: list[Message]) -> str:
            self.turns += 1
            return answer()

        def record(self, trajectory: Trajectory) -> None:
            trajectory.policy_versions = [0] * self.turns

    trajectory = Trajectory(scenario=env.scenario)
    asyncio.run(_Episode(env, Scripted(), trajectory).run())
    return trajectory.messages


async def _play(
    env_class: type[Env],
    settings: Any,
    scenario: Scenario,
    agent: Agent,
    trajectory: Trajectory,
) -> None:
    env = None
    try:
        env = env_class(scenario, settings)
        await _Episode(env, agent, trajectory).run()
    except ArtError:  # the engine, not this episode
        raise
    except DeadlineError as e:
        trajectory.stop_reason, trajectory.reward, trajectory.error = "timeout", None, str(e)
    except Exception as e:
        trajectory.stop_reason, trajectory.reward = "error", None
        trajectory.error = f"{blame(e, env_class)}\n{traceback.format_exc(limit=-6)}"
    finally:
        if env is not None:
            await _close(env, trajectory)


async def _close(env: Env, trajectory: Trajectory) -> None:
    try:
        await call(env.close, seconds=env.tool_timeout, what="close()")
    except Exception as e:  # the reward stands; the trajectory says what went wrong
        trajectory.error = trajectory.error or f"close() failed: {e!r}"


class _Episode:
    """The turn loop. The env's time counts against its deadlines; the engine's does not."""

    def __init__(self, env: Env, agent: Agent, trajectory: Trajectory) -> None:
        self._env = env
        self._agent = agent
        self._trajectory = trajectory
        self._tools = tools_of(type(env))
        self._left = env.episode_timeout

    async def run(self) -> None:
        trajectory, env = self._trajectory, self._env
        trajectory.tools = schemas_of(type(env))
        messages = opening(env, await self._timed(env.start, what="start()"))
        trajectory.stop_reason = "max_turns"
        for _ in range(env.max_turns):
            trajectory.messages += messages
            try:
                text = await self._agent.act(messages)
            except ContextFull:
                trajectory.stop_reason = "context"
                break
            outcome = await self._turn(text)
            if isinstance(outcome, Done):
                trajectory.stop_reason = "env"
                break
            messages = outcome
        else:
            trajectory.messages += messages  # nobody read them, but the score may
        self._agent.record(trajectory)
        context = await self._timed(env.judge_context, what="judge_context()")
        trajectory.judge_context = str(context)
        reward = await self._timed(env.score, trajectory, what="score()")
        if reward is not None and not math.isfinite(reward):
            raise ValueError(f"score() returned {reward}; a reward must be a finite number")
        trajectory.metrics = {name: float(value) for name, value in env.metrics.items()}
        trajectory.reward = None if reward is None else float(reward)

    async def _turn(self, text: str) -> list[Message] | Done:
        said = spoken(text)
        calls = parse_tool_calls(said) if self._tools else []
        message: Message = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [c for c in calls if not isinstance(c, str)]
        self._trajectory.messages.append(message)
        if not calls:
            answer = await self._timed(self._env.reply, said, what="reply()")
            if not isinstance(answer, str | Done):
                raise TypeError(f"reply() returned {answer!r}; expected text or Done()")
            return answer if isinstance(answer, Done) else [{"role": "user", "content": answer}]
        began = time.monotonic()
        results = await asyncio.gather(*(self._call_tool(c) for c in calls))
        self._left -= time.monotonic() - began
        if any(isinstance(r, Done) for r in results):
            return Done()
        return [r for r in results if not isinstance(r, Done)]

    async def _call_tool(self, tool_call: ToolCall | str) -> Message | Done:
        if isinstance(tool_call, str):
            return {"role": "tool", "content": tool_call}
        name = tool_call["name"]
        try:
            result = await self._run_tool(name, tool_call["arguments"])
        except ToolError as e:
            result = f"error: {e}"
        if isinstance(result, Done):
            return result
        return {"role": "tool", "name": name, "content": str(result)}

    async def _run_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        spec = self._tools.get(name)
        if spec is None:
            raise ToolError(f"there is no tool {name!r}; there are {', '.join(self._tools)}")
        parsed, method = spec.parse(arguments), getattr(self._env, name)
        limit = max(min(self._env.tool_timeout, self._left), SHORTEST_WAIT)
        if spec.is_async:

            async def run() -> Any:
                return await method(**parsed)

            return await call(run, seconds=limit, what=f"tool {name}()")
        return await call(lambda: method(**parsed), seconds=limit, what=f"tool {name}()")

    async def _timed(self, method: Callable[..., Any], *args: Any, what: str) -> Any:
        began = time.monotonic()
        seconds = max(self._left, SHORTEST_WAIT)
        try:
            return await call(method, *args, seconds=seconds, what=what)
        finally:
            self._left -= time.monotonic() - began


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
