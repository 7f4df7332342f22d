"""The env inspect_ai, in an environment of its own, against Inspect's own eval."""

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
from art_cli.rollout.env_class import env_in

USE = "art_envs.adapters.inspect_env:Inspect"
TASKS = ("popularity", "biology", "theory_of_mind")


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_with("inspect", "inspect-ai==0.3.285"))


def test_the_score_is_that_of_its_own_eval(python: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "envs")])
    command = [python, str(Path(__file__).with_name("inspect_scores.py")), str(tmp_path)]
    env = os.environ | {"PYTHONPATH": path}
    ran = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == 54 and [row for row in rows if row[3] != row[4]] == []
    assert all(reward == next(iter(metrics.values())) for _, _, reward, metrics, _ in rows)
    assert {(row[0], row[2]) for row in rows} == {(name, r) for name in TASKS for r in (0.0, 1.0)}


@pytest.mark.parametrize("task", TASKS)
def test_it_is_an_env_to_train_on(python: str, monkeypatch: Any, task: str) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "envs")]))
    env: Any = env_in(USE, python)
    try:
        cfg = env.Config(task=f"configs/adapters/inspect_tasks.py@{task}")
        found = list(check(USE, env, cfg, Options(episodes=2, python=python)))
        assert f"task=configs/adapters/inspect_tasks.py@{task}" in env.task_list()
    finally:
        env.worker.close()
    assert [f for f in found if f.status == "failed"] == []
