"""What an episode that ends its process costs those that were played beside it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import EnvError
from art_cli.llms.base import Reply
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.env_worker import process
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

ENV = '''
import asyncio, os, threading, time
from dataclasses import dataclass
from art_cli import Done, Env, ToolError, tool
from art_cli.config.sections.llm import LLMConfig

class Counts(Env):
    """Counts what is said, and ends its process where its scenario names."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        user: LLMConfig | None = None

    def __init__(self, scenario, cfg):
        super().__init__(scenario, cfg)
        self.dies = scenario.data.get("dies", "")
        self.said, self.drawn = [], self.rng.random()
        self._end("init")

    def _end(self, where):
        if self.dies == where:
            os._exit(3)

    async def start(self):
        await asyncio.sleep(0)
        self._end("start")
        return f"go {self.drawn}"

    def tools(self):
        self._end("tools")
        return super().tools()

    @tool()
    def look(self) -> str:
        """Look, in a thread."""
        if self.dies == "later":
            threading.Timer(0.2, os._exit, [3]).start()
        self._end("look")
        raise ToolError(f"nothing after {len(self.said)}")

    async def reply(self, text):
        self.said.append(text)
        await asyncio.sleep(self.rng.random() / 50)
        self._end("reply")
        if self.cfg.user:
            asked = [{"role": "user", "content": f"{self.scenario.id} {len(self.said)}"}]
            text = (await self.services.llm(self.cfg.user).ask(asked)).text
        if self.dies == "pid":
            return str(os.getpid())
        return Done() if len(self.said) == 6 else f"{text} {self.rng.random()}"

    async def score(self, trajectory):
        self._end("score")
        self.metrics["said"] = len(self.said)
        return self.rng.random()
'''
LOOK = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
WAYS = ("init", "start", "tools", "look", "reply", "score")


class Talks(TurnAgent):
    """Says a word, and looks between."""

    def __init__(self) -> None:
        self._num = 0

    async def act(self, messages: list[Message]) -> str:
        self._num += 1
        await asyncio.sleep(0.01)
        return LOOK if self._num % 3 == 2 else f"word {self._num}"

    def record(self, trajectory: Trajectory) -> None: ...


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "counts.py").write_text(ENV)
    env: Any = env_in(f"{tmp_path}/counts.py:Counts", sys.executable)
    yield env
    env.worker.close()


def scenario(n: int, dies: str = "") -> Scenario:
    return Scenario(id=f"train-{n}", split="train", seed=n, data={"dies": dies})


def play(
    env: Any,
    scenarios: list[Scenario],
    services: Any = None,
    agent: type[Talks] = Talks,
    **args: Any,
) -> list[Any]:
    async def go() -> list[Trajectory]:
        cfg = env.Config(**args)
        async with asyncio.timeout(110):
            played = (rollout(env, cfg, s, agent(), services) for s in scenarios)
            return list(await asyncio.gather(*played))

    return asyncio.run(go())


def told(trajectory: Trajectory) -> tuple[Any, ...]:
    steps = [(s.tool, s.said, s.result, s.is_error) for s in trajectory.steps]
    return trajectory.reward, trajectory.metrics, trajectory.messages, steps, trajectory.error


def test_a_scenario_that_ends_its_process_costs_its_own_episodes_alone(env: Any) -> None:
    undisturbed = play(env, [scenario(n) for n in range(12)])
    dying = {1: "reply", 7: "look"}
    disturbed = play(env, [scenario(n, dying.get(n, "")) for n in range(12)])
    for n, (before, after) in enumerate(zip(undisturbed, disturbed, strict=True)):
        if n in dying:
            assert after.reward is None and "ended with exit code 3" in str(after.error)
        else:
            assert told(after) == told(before) and before.reward is not None


@pytest.mark.slow
def test_wherever_a_scenario_ends_its_process_the_others_end_the_same(env: Any) -> None:
    undisturbed = play(env, [scenario(n) for n in range(18)])
    dying = {3 * n + 1: way for n, way in enumerate(WAYS)}
    disturbed = play(env, [scenario(n, dying.get(n, "")) for n in range(18)])
    assert [n for n, t in enumerate(disturbed) if t.reward is None] == list(dying)
    others = [n for n in range(18) if n not in dying]
    assert [told(disturbed[n]) for n in others] == [told(undisturbed[n]) for n in others]


@pytest.mark.slow
def test_a_process_that_is_killed_from_outside_costs_nothing(env: Any) -> None:
    scenarios = [scenario(n) for n in range(8)]
    undisturbed = play(env, scenarios)
    pid = _pid_of(env)

    async def kill() -> None:
        await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)

    async def go() -> list[Trajectory]:
        async with asyncio.timeout(110):
            played = (rollout(env, env.Config(), s, Talks()) for s in scenarios)
            return list((await asyncio.gather(kill(), *played))[1:])

    assert [told(t) for t in asyncio.run(go())] == [told(t) for t in undisturbed]
    assert _pid_of(env) != pid


@pytest.mark.slow
@pytest.mark.parametrize("tool_timeout", [100.0, 2.0])
def test_a_process_that_is_stopped_costs_the_calls_that_miss_their_deadline(
    tmp_path: Path, tool_timeout: float
) -> None:
    setting = f"    tool_timeout = {tool_timeout}\n\n    @dataclass"
    (tmp_path / "counts.py").write_text(ENV.replace("    @dataclass", setting))
    env: Any = env_in(f"{tmp_path}/counts.py:Counts", sys.executable)
    scenarios = [scenario(n) for n in range(8)]
    undisturbed = play(env, scenarios)
    pid, timers = _pid_of(env), list[threading.Timer]()

    class Stops(Talks):
        async def act(self, messages: list[Message]) -> str:
            text = await super().act(messages)
            if text == LOOK and not timers:  # which then finds the process stopped
                os.kill(pid, signal.SIGSTOP)
                timers.append(threading.Timer(6, os.kill, [pid, signal.SIGCONT]))
                timers[0].start()
            return text

    disturbed = play(env, scenarios, agent=Stops)
    timers[0].join()
    env.worker.close()
    if tool_timeout > 6:
        assert [told(t) for t in disturbed] == [told(t) for t in undisturbed]
    else:  # others are left as they were
        assert {t.stop_reason for t in disturbed if t.reward is None} == {"timeout"}
        pairs = zip(disturbed, undisturbed, strict=True)
        assert all(told(t) == told(before) for t, before in pairs if t.reward is not None)


@pytest.mark.slow
def test_a_process_that_ends_after_the_call_costs_no_other_episode(env: Any) -> None:
    undisturbed = play(env, [scenario(n) for n in range(6)])
    disturbed = play(env, [scenario(n, "later" if n == 2 else "") for n in range(6)])
    others = [n for n in range(6) if n != 2]
    assert [told(disturbed[n]) for n in others] == [told(undisturbed[n]) for n in others]


def test_an_episode_that_is_played_again_asks_its_models_nothing_twice(env: Any) -> None:
    asked: Counter[str] = Counter()

    class Model:
        async def ask(self, messages: Any, schema: Any, tools: Any) -> Reply:
            asked[messages[0]["content"]] += 1
            return Reply(text=f"number {asked.total()}", usd=0.5)

    user = LLMConfig(model="openai/x")
    services = SimpleNamespace(llm=lambda cfg: Model())
    scenarios = [scenario(n, "look" if n == 3 else "") for n in range(6)]
    played = play(env, scenarios, services, user=user)
    assert [t.reward is None for t in played] == [n == 3 for n in range(6)]
    assert set(asked.values()) == {1}
    assert {t.usd for n, t in enumerate(played) if n != 3} == {3.0}


def test_an_env_that_answers_otherwise_when_played_again_fails_and_says_so(env: Any) -> None:
    odd, died, fine = play(env, [scenario(0, "pid"), scenario(1, "score"), scenario(2)])
    assert died.reward is None and fine.reward is not None
    if odd.reward is None:  # it was under way as the process ended
        assert "played again in the next, the env answered reply() with" in str(odd.error)


def test_an_env_of_which_every_scenario_ends_its_process_ends_the_run(
    env: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_KILLERS", 3)
    with pytest.raises(EnvError, match="each of 3 scenarios, one after another, ended"):
        play(env, [scenario(n, "start") for n in range(4)])


def _pid_of(env: Any) -> int:
    """The process of the env itself, which is the only child of its guard."""
    guard = env.worker.process()._process.pid
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
