"""`art runs RUN`: its metrics by name, and as curves that fit and stand where they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shown_runs import make_run
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import UsageError
from art_cli.inspection.plot import drawn
from art_cli.why.evidence import Point


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "runs" / "test" / "made", steps=4, groups=1, size=2)


def runs(*words: object, width: int = 60) -> str:
    command = ["runs", *map(str, words)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_curve_fits_the_terminal_and_says_its_ends(run: Path, width: int) -> None:
    lines = runs(run, "--plot", "val/reward", "--plot", "train/reward", width=width).splitlines()
    frames = [line for line in lines if "┌" in line or "└" in line]
    assert lines[0] == "val/reward" and "train/reward" in lines
    assert {len(line) for line in frames} == {width}
    assert "0.4 at step 0, 0.44 at step 4; least 0.4 (0), most 0.44 (4)" in lines


def test_a_curve_stands_where_its_ticks_say() -> None:
    text = drawn([Point(0, 0.0), Point(4, 1.0), Point(8, 0.0)], 40, can_draw=False)
    rows = [line for line in text.splitlines() if "|" in line]
    tops = [n for n, row in enumerate(rows) if "*" in row]
    assert rows[0].startswith("  1|") and rows[-1].startswith("  0|") and tops[0] == 0
    assert rows[-1].strip().endswith("*|") and text.isascii()
    assert text.splitlines()[-1].split() == ["0", "4", "8"]


def test_a_flat_curve_lies_in_the_middle() -> None:
    text = drawn([Point(1, 0.25), Point(2, 0.25)], 30, can_draw=False)
    rows = [line for line in text.splitlines() if "|" in line]
    assert [n for n, row in enumerate(rows) if "*" in row] == [len(rows) // 2]


def test_without_a_metric_their_names_are_listed(run: Path) -> None:
    text = runs(run)
    assert "test/made  done" in text and "loss/  entropy, ratio_max" in text


def test_json_has_the_points(run: Path) -> None:
    found = json.loads(runs(run, "--plot", "val/reward", "--json"))
    assert found["name"] == "made" and found["metrics"] == {"val/reward": [[0, 0.4], [4, 0.44]]}


def test_a_wrong_metric_and_a_metric_of_no_run_are_told(run: Path) -> None:
    with pytest.raises(UsageError, match=r"no metric 'val/rewrd'. Did you mean 'val/reward'\?"):
        runs(run, "--plot", "val/rewrd")
    with pytest.raises(UsageError, match="art runs RUN --plot val/reward"):
        runs("--plot", "val/reward")
