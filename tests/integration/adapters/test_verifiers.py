"""The env verifiers, in an environment of its own, against the library's own scores."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_venv import ROOT, python_with

from art_cli.preflight.envs.check import check
from art_cli.preflight.envs.subject import Options
from art_cli.rollout.env_class import env_in

FOLDER = Path(__file__).parent
USE = "art_envs.adapters.verifiers_env:Verifiers"
CLASSIC = {
    "puzzles": {"kind": "puzzles", "data_set": "leg_counting"},
    "tools": {"kind": "tools"},
    "talk": {"kind": "talk"},
}


@pytest.fixture(scope="module")
def python() -> str:
    return str(python_with("verifiers", "verifiers==0.4.0"))


@pytest.fixture(scope="module")
def classic_python() -> str:
    """One that has load_environment(): no version has both."""
    return str(python_with("verifiers-classic", "verifiers==0.3.1", "reasoning-gym==0.1.25"))


@pytest.fixture(scope="module", autouse=True)
def on_path() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join([str(ROOT), str(ROOT / "envs"), str(FOLDER)])
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(scope="module")
def env(python: str) -> Iterator[Any]:
    found: Any = env_in(USE, python)
    yield found
    found.worker.close()


@pytest.fixture(scope="module")
def classic_env(classic_python: str) -> Iterator[Any]:
    found: Any = env_in(USE, classic_python)
    yield found
    found.worker.close()


def rows_of(python: str, script: str) -> list[Any]:
    """The lines of a script: kind, what was said, art's reward, the library's, both's metrics."""
    ran = subprocess.run([python, str(FOLDER / script)], capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row for row in rows if row[2] != row[3] or row[4] != row[5]] == []
    return rows


def rewards(rows: list[Any], kind: str) -> set[float]:
    return {row[2] for row in rows if row[0] == kind}


def failures(env: Any, python: str, **args: Any) -> list[Any]:
    found = check(USE, env, env.Config(**args), Options(episodes=2, python=python))
    return [each for each in found if each.status == "failed"]


def test_the_score_is_that_of_a_tasksets_own_rewards(python: str) -> None:
    rows = rows_of(python, "tasksets_scores.py")
    assert rewards(rows, "sums") == rewards(rows, "talk") == {0.0, 1.0}
    assert rewards(rows, "tools") == {0.2, 1.1}
    cut_off = [row for row in rows if row[0] == "talk" and len(row[1]) == 2]
    assert {row[2] for row in cut_off} == {1.0}  # two turns of three are scored as they are


def test_the_score_is_that_of_its_own_rollout(classic_python: str) -> None:
    rows = rows_of(classic_python, "verifiers_scores.py")
    assert rewards(rows, "puzzles") >= {0.0, 1.0} and rewards(rows, "talk") == {0.0, 1.0}
    assert rewards(rows, "tools") == {0.1, 0.2, 1.0, 1.2}


@pytest.mark.parametrize("kind", ["sums", "talk"])
def test_a_taskset_is_an_env_to_train_on(env: Any, python: str, kind: str) -> None:
    args = {"taskset": {"task": {"kind": kind}}}
    assert failures(env, python, id="vf_tasksets", args=args) == []


@pytest.mark.parametrize("task", CLASSIC)
def test_it_is_an_env_to_train_on(classic_env: Any, classic_python: str, task: str) -> None:
    assert failures(classic_env, classic_python, id="vf_tasks", args=CLASSIC[task]) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"id": "nothing_here"},
            "cannot load the taskset 'nothing_here'.*needs 'verifiers>=0.1.14,<0.4'",
        ),
        ({"args": {"agent": {"harness": {"id": "bash"}}}}, "bash runs what.*args.agent.runtime"),
        ({"args": {"id": "user-sim"}}, r"one of its agents \(assistant, user\) can be the policy"),
        ({"args": {"taskset": {"endless": True}}}, "have no end: say how many.*args.tasks"),
    ],
)
def test_what_is_not_played_is_refused(env: Any, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){why}"):
        env.Config(**{"id": "vf_tasksets"} | settings)


def test_a_harness_that_runs_code_and_a_taskset_without_end_are_played_where_told(env: Any) -> None:
    seat = {"harness": {"id": "bash"}, "runtime": {"type": "subprocess"}}
    env.Config(id="vf_tasksets", args={"agent": seat})
    cfg = env.Config(id="vf_tasksets", tasks=10, args={"taskset": {"endless": True}})
    assert [len(list(env.scenarios(cfg, split))) for split in ("train", "val", "test")] == [8, 1, 1]
