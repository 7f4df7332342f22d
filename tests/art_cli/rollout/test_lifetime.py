"""An episode is opened and closed in one task."""

import asyncio
import time
from typing import Any

import anyio
import pytest

from art_cli.envs.base import Env
from art_cli.envs.tools import tool
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.rollout import play_episode, rollout
from art_cli.types import Message, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=1)
CALL = '<tool_call>{"name": "ask", "arguments": {}}</tool_call>'


class Says(TurnAgent):
    """Some turns."""

    def __init__(self, *turns: str) -> None:
        self._turns = list(turns)

    async def act(self, messages: list[Message]) -> str:
        return self._turns.pop(0)

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


class Scoped(Env):
    """Opens a task group in start(), and leaves it in close()."""

    tool_timeout = 2.0
    log: list[Any] = []  # noqa: RUF012
    fails = False

    async def start(self) -> str:
        self.log.append(asyncio.current_task())
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(self._work)
        return "hello"

    async def _work(self) -> None:
        if self.fails:
            raise ConnectionError("the server is gone")
        await anyio.sleep_forever()

    @tool()
    async def ask(self) -> str:
        """Ask in a scope of its own."""
        with anyio.fail_after(1):
            await anyio.sleep(0)
        return "yes"

    async def score(self, trajectory: Trajectory) -> float:
        return float(trajectory.steps[0].result == "yes")

    async def close(self) -> None:
        self.log.append(asyncio.current_task())
        self.group.cancel_scope.cancel()
        await self.group.__aexit__(None, None, None)


@pytest.fixture(autouse=True)
def empty_log() -> None:
    Scoped.log = []


def test_a_cancel_scope_of_start_is_left_in_close() -> None:
    t = asyncio.run(rollout(Scoped, None, SCENARIO, Says(CALL, "bye")))
    assert (t.reward, t.error) == (1.0, None)
    assert len(Scoped.log) == 2 and len(set(Scoped.log)) == 1


def test_demonstrations_close_what_they_open() -> None:
    turns = iter([CALL, "bye"])
    assert play_episode(Scoped(SCENARIO, None), lambda: next(turns)).reward == 1.0
    assert len(set(Scoped.log)) == 1 and len(Scoped.log) == 2


def test_a_scope_that_fails_is_left_and_said() -> None:
    class Fails(Scoped):
        fails = True

    began = time.process_time()
    t = asyncio.run(rollout(Fails, None, SCENARIO, Says(CALL, "bye")))
    assert t.error and "close() failed" in t.error and "the server is gone" in repr(t.error)
    assert time.process_time() - began < 1  # and nothing spins


def test_a_start_that_is_given_up_is_closed_in_its_task() -> None:
    class Late(Scoped):
        episode_timeout = 0.2

        async def start(self) -> str:
            await super().start()
            await anyio.sleep_forever()
            return ""

    t = asyncio.run(rollout(Late, None, SCENARIO, Says()))
    assert t.error == "start() did not return within 0.2 s"
    assert len(set(Scoped.log)) == 1 and len(Scoped.log) == 2


def test_an_episode_that_is_cancelled_as_it_starts_is_closed() -> None:
    started = asyncio.Event()

    class Endless(Scoped):
        tool_timeout = 600.0

        async def start(self) -> str:
            await super().start()
            started.set()
            await anyio.sleep_forever()
            return ""

    async def go() -> None:
        playing = asyncio.ensure_future(rollout(Endless, None, SCENARIO, Says()))
        await started.wait()
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    began = time.monotonic()
    asyncio.run(go())
    assert len(set(Scoped.log)) == 1 and len(Scoped.log) == 2
    assert time.monotonic() - began < Endless.tool_timeout / 2
