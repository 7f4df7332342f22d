"""`art diff`: what differs between two runs, and no more certainty than the episodes give."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from short_run import CONFIG
from shown_runs import make_run, trajectory, write_step
from typer.testing import CliRunner

from art_cli.cli.inputs import load
from art_cli.cli.main import app
from art_cli.errors import UsageError
from art_cli.inspection.provenance import made_with, note_start
from art_cli.runs.directory import RunDir

SCENARIOS = 40


def diff(*words: object, width: int = 80) -> str:
    command = ["diff", *map(str, words)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def found(*runs: Path) -> Any:
    return json.loads(diff(*runs, "--json"))


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Make a run whose last evaluation earns `reward(scenario)`; `changes` of each episode."""

    def made(name: str, reward: Callable[[int], float], config: str = "", **changes: Any) -> Path:
        run = make_run(tmp_path / "runs" / "test" / name, steps=4, groups=2, size=2)
        (run / "config.yaml").write_text(f"train: {{steps: 4{config}}}\n")
        rows = [
            trajectory(4, "val", g, 0, reward=reward(g), metrics={}, **changes)
            for g in range(SCENARIOS)
        ]
        write_step(run, 4, "val", rows)
        return run

    return made


def half(scenario: int) -> float:
    return scenario % 2 / 1


def test_a_setting_that_helps_is_named_and_the_change_is_sure(make: Callable[..., Path]) -> None:
    runs = make("a", half), make("b", lambda _: 1.0, ", learning_rate: 0.1, group_size: 8")
    told = found(*runs)
    assert {(s["key"], s["first"], s["second"]) for s in told["config"]} == {
        ("train.learning_rate", "(absent)", "0.1"),
        ("train.group_size", "(absent)", "8 (default)"),
    }
    [reward] = [m for m in told["metrics"] if m["name"] == "reward"]
    assert reward["change"]["value"] == 0.5 and reward["change"]["low"] > 0.3
    assert told["num_common"] == SCENARIOS
    assert told["verdict"].startswith("The second is better on the 40 held-out scenarios of both")
    assert "train.learning_rate, train.group_size: which of these it was" in told["verdict"]


def test_a_difference_within_chance_is_no_difference(make: Callable[..., Path]) -> None:
    told = found(make("a", half), make("b", lambda s: half(s) if s else 1.0))
    assert told["verdict"].startswith("No difference can be told")
    assert "Nothing that is known of differs" in told["verdict"]


def test_runs_that_end_the_same_are_told_so(make: Callable[..., Path]) -> None:
    told = found(make("a", half), make("b", half, ", learning_rate: 0.1"))
    assert told["same_play"] == 1.0
    assert "the same, word for word. What differs (train.learning_rate)" in told["verdict"]


def test_other_scenarios_under_the_same_names_are_not_compared(make: Callable[..., Path]) -> None:
    told = found(make("a", half), make("b", lambda _: 1.0, scenario={"order": "another"}))
    assert told["num_common"] == 0
    assert "their val scenarios are not the same ones" in told["verdict"]
    assert all(metric["change"] is None for metric in told["metrics"])


def test_a_tool_that_only_one_of_them_calls_is_zero_in_the_other(make: Callable[..., Path]) -> None:
    call = {"turn": 0, "tool": "escalate", "arguments": {}, "result": "ok", "is_error": False}
    told = found(make("a", half, steps=[]), make("b", half, steps=[call], stop_reason="max_turns"))
    metrics = {m["name"]: m for m in told["metrics"]}
    assert metrics["calls of escalate"]["first"]["value"] == 0
    assert metrics["calls of escalate"]["change"]["value"] == 1
    assert metrics["ended by env"]["change"]["value"] == -1


@pytest.mark.parametrize("width", [60, 80])
def test_it_fits_the_terminal(make: Callable[..., Path], width: int) -> None:
    runs = make("a", half), make("b", lambda _: 1.0, ", learning_rate: 0.1")
    text = diff(*runs, width=width)
    table = text[text.index("scenarios in common") :]
    assert max(map(len, table.splitlines())) <= width and "look_up()" in table
    assert any(line.startswith("reward  ") for line in table.splitlines())
    assert "All that is known to differ is train.learning_rate." in " ".join(text.split())


def test_a_run_without_an_evaluation_gives_no_verdict(make: Callable[..., Path]) -> None:
    runs = make("a", half), make("b", half)
    for file in (runs[1] / "trajectories").glob("val-*"):
        file.unlink()
    assert found(*runs)["verdict"].startswith("Which is better cannot be said")
    assert "no evaluation" in diff(*runs)


def test_what_a_run_was_made_with_tells_code_versions_and_files(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = make("a", half), make("b", lambda _: 1.0)
    (tmp_path / "config.yaml").write_text(CONFIG)
    rubric = tmp_path / "rubric.txt"
    for number, run in enumerate(runs):
        rubric.write_text(f"rubric {number}")
        loaded = load(["config.yaml", "judge={model: openai/o3, rubric_file: rubric.txt}"])
        note_start(RunDir(run), loaded)
    first = made_with(RunDir(runs[0]))
    assert first["package torch"] and len(first["env code"]) == 16 and first["commit"] == "unknown"
    told = found(*runs)
    assert [s["key"] for s in told["made_with"]] == ["file judge.rubric_file"]
    assert "All that is known to differ is file judge.rubric_file." in told["verdict"]


def test_a_folder_that_is_no_run_is_told(make: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        diff(make("a", half), "nowhere")
