"""An env in an interpreter of its own: the same play, and what its death costs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from art_cli.chat.render import Renderer
from art_cli.config.load import load_experiment
from art_cli.config.sections.llm import LLMConfig
from art_cli.envs.base import Env
from art_cli.envs.digest import code_digest
from art_cli.envs.registry import env_class
from art_cli.envs.tools import schemas_of
from art_cli.errors import ConfigError, UsageError
from art_cli.llms.base import Reply
from art_cli.models.policy import Policy
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.env_worker import process
from art_cli.rollout.env_worker.remote import log_env
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import rollout
from art_cli.training.demonstrations import load_demonstrations
from art_cli.types import Completion, Message, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=7)
ODD = '''
import asyncio, os, sys, time
from dataclasses import dataclass
from art_cli import Done, Env, Tool, ToolError, UsageError, tool
from art_cli.config.sections.llm import LLMConfig

class Odd(Env):
    """Does what it is told."""

    tool_timeout = 300.0

    @dataclass(frozen=True, kw_only=True)
    class Config:
        size: int = 3
        user: LLMConfig | None = None

        def __post_init__(self):
            if self.size > 9:
                raise ValueError("size is more than 9")

    async def start(self):
        self.closing = ""
        self.max_turns = self.cfg.size
        return str(os.getpid())

    def tools(self):
        schema = {"type": "object", "properties": {}}
        return [*super().tools(), Tool(name="own", description="Own.", parameters=schema)]

    async def call_tool(self, name, arguments):
        return f"{name} {arguments} of {self.calls_in_turn}"

    @tool()
    def do(self, what: str, number: int = 1) -> str:
        """Do something."""
        if what == "die": os._exit(3)
        if what == "hang": time.sleep(60)
        if what == "refuse": raise ToolError("no")
        if what == "fail": return {}["key"]
        if what == "give up": raise UsageError("there is no file x")
        if what == "read": return repr(sys.stdin.read())
        if what == "print":
            print("to stdout", flush=True); os.write(1, b"and below\\n"); os.system("echo a child")
        return f"{what} {number}"

    @tool()
    async def block(self) -> str:
        """Hold everybody up."""
        time.sleep(60)

    async def reply(self, text):
        if text == "ask":
            reply = await self.services.llm(self.cfg.user).ask([{"role": "user", "content": "?"}])
            return reply.text
        return Done() if text == "end" else "go on"

    async def score(self, trajectory):
        self.metrics["turns"] = trajectory.num_turns
        return float(len(trajectory.steps))
'''


class Says(TurnAgent):
    """Says given turns, then `end`."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)

    async def act(self, messages: list[Message]) -> str:
        return next(self._turns, "end")

    def record(self, trajectory: Trajectory) -> None: ...


def do(what: str, **more: Any) -> str:
    arguments = str({"what": what, **more}).replace("'", '"')
    return f'<tool_call>{{"name": "do", "arguments": {arguments}}}</tool_call>'


BLOCK = '<tool_call>{"name": "block", "arguments": {}}</tool_call>'


@pytest.fixture
def tool_timeout() -> float:
    return 300.0


@pytest.fixture
def odd(tmp_path: Path, tool_timeout: float) -> Iterator[Any]:
    file = tmp_path / "odd.py"
    file.write_text(ODD.replace("300.0", str(tool_timeout)))
    env: Any = env_in(f"{file}:Odd", sys.executable)
    yield env
    env.worker.close()


@pytest.fixture(scope="module")
def desk() -> Iterator[Any]:
    env: Any = env_in("order_desk", sys.executable)
    yield env
    env.worker.close()


def play(env: type[Env], *agents: Says, services: Any = None, **args: Any) -> list[Trajectory]:
    async def go() -> list[Trajectory]:
        cfg = env.Config(**args)
        return await asyncio.gather(*(rollout(env, cfg, SCENARIO, a, services) for a in agents))

    return asyncio.run(go())


def test_an_env_is_the_same_elsewhere(desk: type[Env]) -> None:
    here = env_class("order_desk")
    cfg, there = here.Config(), desk.Config()
    assert list(desk.scenarios(there, "val")) == list(here.scenarios(cfg, "val"))
    told = load_demonstrations("env", desk, there, 8)
    assert told == load_demonstrations("env", here, cfg, 8)
    assert schemas_of(desk) == schemas_of(here)
    assert code_digest(desk) == code_digest(here) and desk.__qualname__ == here.__qualname__
    assert (desk.__doc__, desk.system, desk.max_turns) == (here.__doc__, here.system, 5)


def test_its_episodes_have_the_same_tokens_and_rewards(
    desk: type[Env], make_policy: Callable[..., Policy]
) -> None:
    policy, here = make_policy(), env_class("order_desk")
    renderer = Renderer(policy.tokenizer, schemas_of(here))

    class Scripted:
        """Says what other episodes' demonstrations did: right, wrong and refused calls."""

        def __init__(self, turns: list[str]) -> None:
            self._turns = iter(turns)

        async def generate(self, ids: list[int]) -> Completion:
            said = list(renderer.encode(next(self._turns, "done") + renderer.end_of_turn))
            logprobs = [-1.0] * len(said)
            return Completion(
                token_ids=said, logprobs=logprobs, finish_reason="stop", policy_version=0
            )

        def close(self) -> None: ...

    def played(env: type[Env]) -> list[Trajectory]:
        cfg = env.Config()
        scenarios = list(islice(env.scenarios(cfg, "train"), 9))
        turns = [[m["content"] for m in d if m["role"] == "assistant"] for d in told]

        async def go() -> list[Trajectory]:
            agents = [PolicyAgent(renderer, lambda t=t: Scripted(t), 4096) for t in turns]
            pairs = zip(scenarios, agents, strict=False)
            return await asyncio.gather(*(rollout(env, cfg, s, a) for s, a in pairs))

        return asyncio.run(go())

    told = load_demonstrations("env", here, here.Config(), 8)
    a, b = played(here), played(desk)
    assert [t.sequences for t in a] == [t.sequences for t in b]
    assert [(t.reward, t.metrics, t.steps) for t in a] == [
        (t.reward, t.metrics, t.steps) for t in b
    ]
    assert len({t.reward for t in a}) > 2 and all(t.error is None for t in b)


def test_gold_of_an_env_elsewhere_is_asked_as_it_is_due(desk: type[Env]) -> None:
    cfg = desk.Config()
    scenario = next(iter(desk.scenarios(cfg, "train")))
    env = desk(scenario, cfg)
    turns = list(env.gold() or ())
    mine = env_class("order_desk")
    assert turns == list(mine(scenario, mine.Config()).gold() or ()) and len(turns) > 1


def test_tools_errors_and_limits_travel(odd: type[Env]) -> None:
    own = '<tool_call>{"name": "own", "arguments": {"a": [1, "\u00fc"]}}</tool_call>'
    said = Says(do("refuse"), do("x", number="one"), do("twice", number=2), own)
    short, failed, gave_up = play(odd, said, Says(do("fail")), Says(do("give up")), size=4)
    assert [s.result for s in short.steps] == [
        "error: no",
        "error: invalid arguments for do: number: Input should be a valid integer, unable to parse "
        "string as an integer",
        "twice 2",
        "own {'a': [1, '\u00fc']} of 1",
    ]
    assert short.stop_reason == "max_turns" and (short.reward, short.metrics["turns"]) == (4, 4)
    assert failed.reward is None and str(failed.error).endswith("odd.py:39: KeyError: 'key'")
    assert gave_up.reward is None and gave_up.error == "there is no file x"


@pytest.mark.parametrize("python", [None, sys.executable])
def test_an_env_knows_how_many_calls_of_a_turn_reach_it(tmp_path: Path, python: str | None) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    env: Any = env_in(f"{tmp_path}/odd.py:Odd", python)
    call = '<tool_call>{"name": "NAME", "arguments": {}}</tool_call>'
    own, none = call.replace("NAME", "own"), call.replace("NAME", "none")
    [t] = play(env, Says(own + none + do("x") + "<tool_call>{</tool_call>", own))
    told = {s.result for s in t.steps if s.tool == "own"}
    assert told == {"own {} of 2", "own {} of 1"}
    if python:
        env.worker.close()


def test_what_it_prints_goes_to_a_log(odd: Any, tmp_path: Path) -> None:
    log_env(odd, tmp_path / "logs" / "env.log")
    [t] = play(odd, Says(do("print"), do("read")))
    assert t.reward == 3 and t.steps[1].result == "''"
    odd.worker.close()
    printed = (tmp_path / "logs" / "env.log").read_text()
    assert printed == "to stdout\nand below\na child\n"


def test_a_death_costs_an_episode_that_cannot_be_played_again_the_same(odd: Any) -> None:
    under_way = asyncio.Event()

    async def go() -> list[Trajectory]:
        cfg = odd.Config(size=9)
        other = asyncio.ensure_future(rollout(odd, cfg, SCENARIO, Waits()))
        await under_way.wait()
        died = await rollout(odd, cfg, SCENARIO, Says(do("die")))
        return [died, await other, await rollout(odd, cfg, SCENARIO, Says())]

    class Waits(Says):
        async def act(self, messages: list[Message]) -> str:
            under_way.set()
            await asyncio.sleep(0.05)
            return "more"

    died, other, after = asyncio.run(go())
    for lost in (died, other):
        assert lost.reward is None and "the env's process ended with exit code 3" in str(lost.error)
    assert after.reward == 1 and after.messages[0] != died.messages[0]  # it says its process


@pytest.mark.parametrize("tool_timeout", [1.0])
def test_a_call_that_hangs_misses_its_deadline_and_others_go_on(odd: type[Env]) -> None:
    began = time.monotonic()
    hung, fine = play(odd, Says(do("hang")), Says(do("x")))
    assert hung.reward is None and hung.stop_reason == "timeout"
    assert str(hung.error) == "tool do() did not return within 1 s"
    assert fine.reward == 2 and time.monotonic() - began < 50


@pytest.mark.timeout(600)  # time without a processor does not count as standing still
@pytest.mark.parametrize("tool_timeout", [1.0])
def test_a_process_that_stands_still_is_replaced(
    odd: type[Env], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CANCEL_SECONDS", 0.3)
    blocked, held_up = play(odd, Says(BLOCK), Says("a", "b", do("x")))
    assert blocked.stop_reason == "timeout" and held_up.reward is None
    deadline = time.monotonic() + 300
    while not odd.worker._process.death and time.monotonic() < deadline:  # type: ignore[attr-defined]
        time.sleep(0.05)
    assert "stood still for 0.3 s" in odd.worker._process.death  # type: ignore[attr-defined]
    assert play(odd, Says())[0].reward == 1


def test_it_asks_the_models_of_the_run(odd: type[Env]) -> None:
    class Model:
        async def ask(self, messages: Any, schema: Any, tools: Any) -> Reply:
            return Reply(text=f"heard {messages[0]['content']}", usd=0.5)

    user = LLMConfig(model="openai/x")
    services = SimpleNamespace(llm=lambda cfg: {user.model: Model()}[cfg.model])
    [t] = play(odd, Says("ask"), services=services, user=user)
    assert t.steps[0].result == "heard ?" and t.usd == 0.5
    [t] = play(odd, Says("ask"), user=user)
    assert "cannot be asked: this episode is not part of a run" in str(t.error)


def test_settings_are_checked_where_the_env_is(odd: type[Env], tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    use = f"env: {{use: '{tmp_path}/odd.py:Odd', python: {sys.executable}"
    rest = "model: {base: tiny}\ntrain: {steps: 1}\n"
    for args, told in {
        "{size: 10}": "env.args: size is more than 9",
        "{size: x}": "env.args: size: Input should be a valid integer",
        "{sise: 1}": "env.args.sise: unknown key. Did you mean 'size'?",
    }.items():
        file.write_text(f"{use}, args: {args}}}\n{rest}")
        with pytest.raises(ConfigError, match=re.escape(told)) as caught:
            load_experiment([file], plugin_config=lambda *use: env_in(*use).Config)
        assert str(caught.value).startswith(f"{file}:1:")
    file.write_text(f"{use}}}\n{rest}")
    loaded = load_experiment([file], plugin_config=lambda *use: env_in(*use).Config)
    assert loaded.env_settings == odd.Config(size=3, user=None)


@pytest.mark.parametrize(
    ("use", "python", "said"),
    [
        ("order_desk", "no-such-python", "there is no program 'no-such-python'"),
        ("no_such.module:Env", sys.executable, "there is no module 'no_such.module'"),
        ("order_desk", "/bin/false", "ended with exit code 1"),
    ],
)
def test_an_interpreter_that_cannot_run_it_is_refused(use: str, python: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        env_in(use, python)
    assert str(caught.value).startswith("env.python: ")


def test_nothing_is_left_when_art_is_killed(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    code = (
        "import asyncio, subprocess, sys, time\n"
        "from art_cli.rollout.env_class import env_in\n"
        "from art_cli.types import Scenario\n"
        "env = env_in('odd.py:Odd', sys.executable)\n"
        "one = env(Scenario(id='train-0', split='train', seed=1), env.Config())\n"
        "print(asyncio.run(one.start()), flush=True)\n"
        "time.sleep(60)\n"
    )
    path = os.pathsep.join(sys.path)
    starter = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout
    with starter.stdout as out:
        pid = int(out.readline())
        assert Path(f"/proc/{pid}").exists()
        starter.send_signal(signal.SIGKILL)
        starter.wait()
        deadline = time.monotonic() + 300
        while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
