"""The env verifiers, in an environment of its own, against the library's own rollouts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from own_venv import ROOT, python_with

from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.env_worker.remote import env_in

FOLDER = Path(__file__).parent
USE = "art_envs.adapters.verifiers_env:Verifiers"
TASKS = {
    "puzzles": {"kind": "puzzles", "data_set": "leg_counting"},
    "tools": {"kind": "tools"},
    "talk": {"kind": "talk"},
}


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_with("verifiers", "verifiers==0.1.14", "reasoning-gym==0.1.25"))


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs"), str(FOLDER)])
    monkeypatch.setenv("PYTHONPATH", path)


def test_the_score_is_that_of_its_own_rollout(python: str, on_path: None) -> None:
    command = [python, str(FOLDER / "verifiers_scores.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row for row in rows if row[2] != row[3] or row[4] != row[5]] == []
    rewards = {kind: {row[2] for row in rows if row[0] == kind} for kind in TASKS}
    assert rewards["puzzles"] >= {0.0, 1.0} and rewards["talk"] == {0.0, 1.0}
    assert rewards["tools"] == {0.1, 0.2, 1.0, 1.2}


@pytest.mark.parametrize("task", TASKS)
def test_it_is_an_env_to_train_on(python: str, on_path: None, task: str) -> None:
    env: Any = env_in(USE, python)
    try:
        cfg = env.Config(id="vf_tasks", args=TASKS[task])
        found = list(check(USE, env, cfg, Options(episodes=2, python=python)))
    finally:
        env.worker.close()
    assert [f for f in found if f.status == "failed"] == []
