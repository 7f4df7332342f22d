"""The process of an env: requests that are cancelled, and lines that are not of the protocol."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from art_cli.errors import RemoteError
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.env_worker import process
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

ENV = '''
import fcntl, os
from art_cli import Done, Env

class Writes(Env):
    """Writes lines into every pipe that its process has open for writing."""

    async def start(self):
        return "go"

    async def reply(self, text):
        if text == "end":
            return Done()
        if text.startswith("write "):
            line = self.scenario.data["line"].encode("latin-1")
            for fd in range(3, 30):
                try:
                    writes = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
                except OSError:
                    continue
                if writes:
                    os.write(fd, line + b"\\n")
        return "go on"

    async def score(self, trajectory):
        return float(trajectory.num_turns)
'''
JUNK = (
    *("[]", "5", "null", '"ask"', "{}", '{"id": [1], "value": 1}', '{"id": 1}', '{"ask": 1}'),
    *('{"id": 1, "error": 5}', '{"id": 1, "error": {"type": []}}', "[" * 60_000, "\xff", "no"),
)


class Says(TurnAgent):
    """Says given turns, then `end`."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)

    async def act(self, messages: list[Message]) -> str:
        return next(self._turns, "end")

    def record(self, trajectory: Trajectory) -> None: ...


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    file = tmp_path_factory.mktemp("env") / "writes.py"
    file.write_text(ENV)
    env: Any = env_in(f"{file}:Writes", sys.executable)
    yield env
    env.worker.close()


def until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 110
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_a_request_cancelled_before_its_first_step_is_answered(env: Any) -> None:
    worker = env.worker.process()

    async def cancel_at_once() -> None:
        asked = [asyncio.ensure_future(worker.ask("task_list")) for _ in range(20)]
        await asyncio.sleep(0)  # they are sent
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)

    asyncio.run(cancel_at_once())
    until(lambda: not worker._pending)
    assert not worker.death and not worker._given_up  # no timer waits to end it
    assert worker.now("task_list", 60) == {}


@pytest.mark.slow
def test_episodes_that_are_cancelled_at_any_moment_leave_the_process_as_it_is(
    env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = env.worker.process()
    for n in range(60):

        async def play(n: int = n) -> None:
            scenario = Scenario(id=f"train-{n}", split="train", seed=n)
            episode = asyncio.ensure_future(rollout(env, env.Config(), scenario, Says(*"abc")))
            for _ in range(n):
                await asyncio.sleep(0)
            await asyncio.sleep(n % 7 / 1000)
            episode.cancel()
            await asyncio.wait({episode})

        asyncio.run(play())
    until(lambda: not worker._pending)
    assert not worker.death


@pytest.mark.slow
@pytest.mark.parametrize("line", JUNK)
def test_a_line_that_is_not_of_the_protocol_costs_the_episode_that_wrote_it(
    env: Any, line: str
) -> None:
    async def play() -> list[Trajectory]:
        cfg, told = env.Config(), {"line": line}
        scenario = Scenario(id=f"train-{line[:9]}", split="train", seed=1, data=told)
        agents = (Says("write it"), *(Says(*"abcdef") for _ in range(3)))
        async with asyncio.timeout(110):
            return list(await asyncio.gather(*(rollout(env, cfg, scenario, a) for a in agents)))

    wrote, *others = asyncio.run(play())
    assert wrote.reward is None
    assert "wrote what is no line of the protocol" in str(wrote.error)
    assert [t.error for t in others] == [None] * 3 and {t.reward for t in others} == {7.0}


def test_who_waits_without_a_loop_is_told_too(env: Any) -> None:
    worker = env.worker.process()
    told = {"line": '{"id": 1, "value"'}
    scenario = Scenario(id="train-0", split="train", seed=1, data=told)

    async def write() -> None:
        await rollout(env, env.Config(), scenario, Says("write it"))

    asyncio.run(write())
    until(lambda: bool(worker.death))
    with pytest.raises(RemoteError, match="no line of the protocol"):
        worker.now("task_list", process.READY_SECONDS)
