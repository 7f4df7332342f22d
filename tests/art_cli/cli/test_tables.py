"""Tables: whole on a terminal of any width and in a file, and no star that means nothing."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from art_cli.cli.tables import STARRED
from art_cli.evaluation.comparison import is_sure
from art_cli.evaluation.statistics import Estimate
from art_cli.runs.directory import RunDir
from art_cli.system.files import json_line
from art_cli.terminal.screen import Screen

NAME = "a-name-of-a-run-that-says-what-was-tried-in-it-and-with-which-seed-and-on-which-machine"


def table() -> Table:
    made = Table(title="val: 8 held-out episodes")
    made.add_column("")
    for name in ("untrained\n(step 0)", "trained\n(step 150)", "change"):
        made.add_column(name, justify="right")
    made.add_row("reward", "0.500 ± 0.075", "0.871 ± 0.054", "+0.371")
    made.add_row("failed episodes", "0", "1", "")
    return made


def drawn(width: int) -> str:
    file = io.StringIO()
    Screen(file=file, width=width).show(table())
    return file.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 120])
def test_no_cell_is_cut_on_any_terminal(width: int) -> None:
    text = drawn(width)
    words = " ".join(text.split())
    for cell in ("reward", "failed episodes", "0.500 ± 0.075", "0.871 ± 0.054", "+0.371"):
        assert cell in words
    assert "…" not in text


def test_where_a_table_does_not_fit_each_cell_has_its_line_and_its_name() -> None:
    assert drawn(40).splitlines()[1:] == [
        "reward",
        "  untrained (step 0)  0.500 ± 0.075",
        "  trained (step 150)  0.871 ± 0.054",
        "  change              +0.371",
        "failed episodes",
        "  untrained (step 0)  0",
        "  trained (step 150)  1",
    ]
    assert "┃" in drawn(60)


def test_a_name_is_whole_in_a_pipe(tmp_path: Path) -> None:
    # Not inherited: readline, which pytest imports, has set COLUMNS behind Python's back.
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    run = RunDir.create(tmp_path / "runs" / "default" / NAME)
    run.config.write_text("seed: 0\n")
    run.metrics.write_text(json_line({"training_step": 1, "train/reward": 0.5}))
    code = "from art_cli.cli.main import main; main()"
    command = [sys.executable, "-c", code, "runs"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    (row,) = [line for line in result.stdout.splitlines() if line.startswith("default/")]
    assert row.split()[0] == f"default/{NAME}" and "0.500" in row


def test_the_footnote_says_why_seconds_have_no_star() -> None:
    assert "seconds have none" in STARRED


def test_seconds_are_no_difference_between_candidates() -> None:
    gap = Estimate(0.2, 0.1, 0.3)
    assert is_sure("reward", gap) and not is_sure("seconds", gap)
