"""`env.concurrency`: how many episodes of an env are open at once."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from colours import colours_model

import art_cli as art
from art_cli.config.sections.env import EnvConfig
from art_cli.envs.base import Done, Env
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.groups import play_groups, slots_of
from art_cli.training.gather import scenarios_of
from art_cli.types import Message, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=1)
SLOW = 0.05  # seconds that an episode takes


class Server(Env):
    """Holds something that there are few of."""

    now = most = 0
    slow = SLOW

    async def start(self) -> str:
        Server.now += 1
        Server.most = max(Server.most, Server.now)
        await asyncio.sleep(self.slow)
        return "hello"

    async def reply(self, text: str) -> Done:
        return Done()

    async def score(self, trajectory: Trajectory) -> float:
        return 1.0

    async def close(self) -> None:
        await asyncio.sleep(0)
        Server.now -= 1


class Says(TurnAgent):
    """One word."""

    async def act(self, messages: list[Message]) -> str:
        return "yes"

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


@pytest.fixture(autouse=True)
def none_is_open() -> None:
    Server.now = Server.most = 0


async def play(slots: asyncio.Semaphore | None, num: int) -> list[Trajectory]:
    jobs = [(SCENARIO, [Says() for _ in range(num)])]
    playing = play_groups(Server, None, None, jobs, slots=slots)
    return [t async for _, group in playing for t in group.trajectories]


@pytest.mark.parametrize(("concurrency", "most"), [(2, 2), (1, 1), (None, 12)])
def test_no_more_are_open_than_there_are_slots(concurrency: int | None, most: int) -> None:
    slots = slots_of(EnvConfig(use="x", concurrency=concurrency))
    played = asyncio.run(play(slots, 12))
    assert [t.error for t in played] == [None] * 12
    assert (Server.most, Server.now) == (most, 0)


def test_a_wait_for_a_slot_counts_against_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "slow", 0.5)
    monkeypatch.setattr(Server, "episode_timeout", 2.0)
    began = time.monotonic()
    played = asyncio.run(play(asyncio.Semaphore(1), 6))
    assert [t.error for t in played] == [None] * 6
    assert max(t.duration for t in played) < Server.episode_timeout < time.monotonic() - began


def test_all_who_play_the_env_share_them() -> None:
    async def go() -> None:
        slots = slots_of(EnvConfig(use="x", concurrency=3))
        await asyncio.gather(*(play(slots, 6) for _ in range(3)))

    asyncio.run(go())
    assert Server.most == 3


def test_who_leaves_early_leaves_no_slot_taken() -> None:
    async def go() -> int:
        slots = slots_of(EnvConfig(use="x", concurrency=1))
        jobs = [(SCENARIO, [Says()]) for _ in range(5)]
        async with aclosing(play_groups(Server, None, None, jobs, slots=slots)) as playing:
            async for _ in playing:
                break
        await asyncio.sleep(SLOW)
        return len(await play(slots, 2))

    assert asyncio.run(go()) == 2
    assert Server.now == 0


def test_an_engine_that_waits_for_episodes_does_not_wait_for_those_without_a_slot(
    tmp_path: Path,
) -> None:
    async def go() -> int:
        model = colours_model(0, steps=1)
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            model.parts.slots = asyncio.Semaphore(3)
            scenarios = scenarios_of(model, "train")[:2]
            groups = await art.gather_trajectory_groups(model, scenarios, group_size=4)
            return sum(t.reward is not None for g in groups for t in g.trajectories)

    assert asyncio.run(asyncio.wait_for(go(), 120)) == 8
