"""`art eval` of a run: its checkpoints, what it began with, and a model on loopback beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from loopback_judge import Answer, Ask, LoopbackJudge
from short_run import CONFIG
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError, UsageError
from art_cli.runs.directory import RunDir

EIGHT = ("--episodes", "8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, ["run", "config.yaml", "train.steps=4", "checkpoint.keep=9"])
        assert done.exit_code == 0, (done.output, done.exception)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RunDir(tmp_path / "runs/test/short")


def art(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["eval", *arguments])
    if isinstance(result.exception, ArtError):
        raise result.exception
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def evaluated(*arguments: str) -> dict[str, Any]:
    return json.loads(art("runs/test/short", *arguments, "--json"))


def reward(row: dict[str, Any]) -> float:
    return row["metrics"]["reward"]["value"]


def test_a_run_is_compared_with_what_it_began_with_and_agrees_with_its_own_evaluations(
    run: RunDir,
) -> None:
    found = evaluated("--checkpoint", "last", *EIGHT)
    assert list(found) == ["untrained", "last"] and found["last"]["step"] == 4
    logged = {r["training_step"]: r for r in run.read_metrics() if "val/reward" in r}
    for name, step in (("untrained", 0), ("last", 4)):
        assert reward(found[name]) == pytest.approx(logged[step]["val/reward"])
        assert found[name]["metrics"]["turns"]["value"] == pytest.approx(logged[step]["val/turns"])


def test_any_number_of_checkpoints_and_the_base_before_the_warm_up(run: RunDir) -> None:
    names = [word for n in ("4", "base", "2", "untrained") for word in ("--candidate", n)]
    found = evaluated(*names, *EIGHT, "--trials", "2")
    assert list(found) == ["4", "base", "2", "untrained"]  # in the order that was asked for
    assert reward(found["base"]) == 0.0  # random weights
    assert reward(found["untrained"]) > 0.0
    assert found["2"]["baseline"] == "4" and found["2"]["episodes"] == 16
    again = evaluated("--candidate", "2", "--candidate", "untrained", *EIGHT, "--trials", "2")
    assert {n: again[n]["metrics"] for n in again} == {n: found[n]["metrics"] for n in again}


def test_chance_plays_beside_the_policies(run: RunDir) -> None:
    words = ("--candidate", "random", "--episodes", "64", "--trials", "4")
    found = evaluated(*words)
    assert list(found) == ["untrained", "best", "random"]
    # Each of four colours is asked as often, and one answer is right, whatever is demonstrated.
    assert reward(found["random"]) == pytest.approx(0.25, abs=0.06)
    assert found["random"]["metrics"]["turns"]["value"] == 2
    again = evaluated(*words, "--fresh")
    assert reward(again["random"]) == reward(found["random"])


def test_what_else_is_evaluated_and_what_is_known_changes_nothing(run: RunDir) -> None:
    def numbers(*arguments: str) -> dict[str, Any]:
        found = evaluated("--candidate", "last", *arguments)["last"]["metrics"]
        return {k: v for k, v in found.items() if k != "seconds"}

    numbers("--episodes", "3")
    bit_by_bit = numbers(*EIGHT, "--trials", "3")
    assert numbers(*EIGHT, "--trials", "3", "--fresh", "--candidate", "2") == bit_by_bit


def test_a_cached_evaluation_loads_no_model(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    first = evaluated(*EIGHT)
    monkeypatch.setattr("art_cli.evaluation.policies.RunPolicies.at", None)
    assert evaluated(*EIGHT) == first
    assert json.loads(run.evaluation("val").read_text()) == first


def test_other_weights_are_another_candidate(run: RunDir) -> None:
    evaluated("--candidate", "last", *EIGHT)
    before = evaluated("--candidate", "2", *EIGHT)["2"]
    shutil.copytree(run.checkpoint(2), run.checkpoint(4), dirs_exist_ok=True)
    assert evaluated("--candidate", "last", *EIGHT)["last"]["metrics"] == before["metrics"]


def test_a_model_behind_an_api_plays_beside_the_run(run: RunDir) -> None:
    opposites = {"red": "black", "blue": "green", "green": "blue", "black": "red"}

    def knows(ask: Ask) -> Answer:
        return Answer(text=opposites.get(ask.messages[-1]["content"], "?"))

    with LoopbackJudge(then=knows) as server:
        rival = f"openai/rival,api_base={server.api_base}"
        found = evaluated("--candidate", rival, *EIGHT)
        assert list(found) == ["untrained", "best", "openai/rival"]
        assert reward(found["openai/rival"]) == 1.0
        assert found["openai/rival"]["difference"]["pass^1"]["low"] > 0
        assert list(evaluated("--candidate", rival, "--candidate", "last", *EIGHT)) == [
            "openai/rival",
            "last",
        ]
        alone = art("config.yaml", "--candidate", rival, *EIGHT, "--json")
        assert list(json.loads(alone)) == ["openai/rival"]


def test_a_config_without_a_run_is_made_once_and_known_then(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(trained / "config.yaml", tmp_path)
    first = json.loads(art("config.yaml", *EIGHT, "--json"))
    assert list(first) == ["untrained"] and not (tmp_path / "runs/test/short/base").exists()
    monkeypatch.setattr("art_cli.evaluation.policies.RunPolicies.at", None)
    assert json.loads(art("config.yaml", *EIGHT, "--json")) == first


def test_a_step_that_has_no_checkpoint_is_told_with_those_that_have(run: RunDir) -> None:
    with pytest.raises(UsageError, match=r"no checkpoint '7'; .*one of: 2, 3, 4|one of: 2, 4"):
        evaluated("--candidate", "7")


@pytest.mark.parametrize("adapter", ["null", "{rank: 4}"])
def test_a_run_without_steps_leaves_what_its_warm_up_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adapter: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG.replace("adapter: null", f"adapter: {adapter}"))
    started = ["run", "config.yaml", "sft={weights: all, num_demonstrations: 20}"]
    done = CliRunner().invoke(app, [*started, "train.steps=0"])
    assert done.exit_code == 0, (done.output, done.exception)
    made = RunDir(tmp_path / "runs/test/short")
    assert made.checkpoint_steps() == [0]
    assert "step 0" in art("runs/test/short", "--checkpoint", "best", *EIGHT)
    again = CliRunner().invoke(app, [*started, "train.steps=1", "--resume"])
    assert again.exit_code == 0, (again.output, again.exception)
    assert made.checkpoint_steps() == [0, 1]
