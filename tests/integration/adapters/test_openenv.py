"""The env openenv, with a server that has an environment of its own, against OpenEnv's client."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from collections.abc import Iterator
from itertools import islice

import pytest
from own_venv import ROOT, python_with

from art_cli.errors import UsageError
from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.play import Played, play_one
from art_cli.preflight.envs.players import Repeater, call_text
from art_cli.preflight.envs.subject import Options
from art_envs.adapters import openenv_env
from art_envs.adapters.openenv_env import OpenEnv

USE = "art_envs.adapters.openenv_env:OpenEnv"
SERVER = ROOT / "configs" / "adapters" / "openenv_walk.py"


@pytest.fixture(scope="module")
def python() -> Iterator[str]:
    yield str(python_with("openenv", "openenv==0.10.0"))
    openenv_env.close_servers()


@pytest.fixture
def cfg(python: str) -> OpenEnv.Config:
    return OpenEnv.Config(command=f"{python} {SERVER} {{port}}", max_turns=40)


def play(cfg: OpenEnv.Config, turns: list[list[str]]) -> list[Played]:
    async def go() -> list[Played]:
        pairs = zip(OpenEnv.scenarios(cfg, "train"), turns, strict=False)
        plays = (play_one(OpenEnv, cfg, s, lambda _, t=t: Repeater(t)) for s, t in pairs)
        return await asyncio.gather(*plays)

    return asyncio.run(go())


def test_the_score_is_the_return_of_its_own_client(python: str, cfg: OpenEnv.Config) -> None:
    rng = random.Random(0)
    actions = [
        [{"direction": rng.choice(["left", "right"])} for _ in range(cfg.max_turns)]
        for _ in range(12)
    ]
    ours = play(cfg, [[call_text("step", action) for action in each] for each in actions])
    seeds = [s.seed % 2**31 for s in islice(OpenEnv.scenarios(cfg, "train"), len(actions))]
    port = openenv_env._url(cfg).rpartition(":")[2]
    stored = json.dumps(list(zip(seeds, actions, strict=True)))
    command = [python, str(ROOT / "tests/integration/adapters/openenv_scores.py"), port, stored]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [p.reward for p in ours] == pytest.approx(json.loads(ran.stdout))
    assert {p.trajectory.stop_reason for p in ours} == {"env", "max_turns"}


def test_what_is_no_action_costs_and_ends_the_episode(cfg: OpenEnv.Config) -> None:
    wrong, odd = call_text("step", {"direction": "up"}), call_text("step", {})
    given_up, cut = play(cfg, [[wrong, "hello", odd, odd], ["<tool_call>{", "", "", ""]])
    assert given_up.trajectory.steps[0].is_error and given_up.trajectory.stop_reason == "env"
    assert "direction: Input should be 'left' or 'right'" in str(
        given_up.trajectory.steps[0].result
    )
    assert (given_up.reward, cut.reward) == (pytest.approx(-0.3), pytest.approx(-0.4))
    assert given_up.trajectory.metrics["invalid_actions"] == 3


def test_it_is_an_env_to_train_on(cfg: OpenEnv.Config) -> None:
    found = list(check(USE, OpenEnv, cfg, Options(episodes=2)))
    assert [f for f in found if f.status == "failed"] == []


def test_a_server_that_does_not_come_up_is_told_with_its_last_words(python: str) -> None:
    cfg = OpenEnv.Config(command=f"{python} -c 'print(7); raise SystemExit(2)'")
    [p] = play(cfg, [[""]])
    assert isinstance(p.error, UsageError) and "ended; it printed:\n7" in str(p.error)
