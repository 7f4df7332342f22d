from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pretended_run
import pytest
from short_run import CONFIG
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.errors import ArtError, Interrupted, UsageError
from art_cli.lab import fleet

SHORT = "train.steps=2 eval.every=2 sft.num_demonstrations=40 sft.epochs=1"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "a.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def pretended(config: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config, with a program in place of `art` that only pretends to train."""
    monkeypatch.setattr(fleet, "ART", [sys.executable, pretended_run.__file__])
    return config


def compared(*words: str) -> Any:
    """Return what `art compare` finds of these words. Raises what ends it."""
    done = CliRunner().invoke(app, ["compare", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


@pytest.mark.slow
def test_seeds_are_paired_and_what_is_done_is_not_run_again(config: Path) -> None:
    words = (f"{config} {SHORT}", "train.learning_rate=1.0e-9", "--seeds", "2", "--target", "2.0")
    found = compared(*words)
    assert found["seeds"] == 2
    first, other = found["candidates"]
    assert (first["letter"], other["label"]) == ("a", "train.learning_rate=1.0e-9")
    assert other["changes"]["step"]["value"] == pytest.approx(other["reward"] - first["reward"])
    assert other["changes"]["step"]["low"] is None and "Not known whether b" in found["verdict"]
    assert first["cpu_s"] > 0 and first["reached"]["step"] is None  # and it is JSON
    runs = [*Path("runs").glob("compare-short-*/*/metrics.jsonl")]
    assert sorted(run.parent.name for run in runs) == ["a-0", "a-1", "b-0", "b-1"]
    written = {run: run.stat().st_mtime_ns for run in runs}
    assert compared(*words) == found
    assert {run: run.stat().st_mtime_ns for run in runs} == written


def test_on_clusters_candidates_train_side_by_side(pretended: Path) -> None:
    on = ("--on", "one", "--on", "two", "--seeds", "2")
    found = compared(str(pretended), "train.learning_rate=0.1", *on)
    assert found["candidates"][1]["changes"]["step"]["value"] == pytest.approx(6 * (0.1 - 0.001))
    sent = {
        file.parent.name: json.loads(file.read_text())["cluster"]
        for file in Path("runs").glob("*/*/cloud.json")
    }
    assert sent["a-0"] != sent["b-0"] and sent["a-1"] != sent["b-1"]
    assert {*sent.values()} == {"one", "two"}


def test_where_one_fails_the_other_saves_and_goes_on_later(pretended: Path) -> None:
    words = (str(pretended), "train.learning_rate=2.0", "--seeds", "2", "--jobs", "2")
    Path("hold").touch()
    with pytest.raises(UsageError, match=r"b .* failed with seed 0, exit code 1"):
        compared(*words)
    [status] = Path("runs").glob("*/a-0/status.json")
    assert json.loads(status.read_text())["state"] == "interrupted"


def test_ctrl_c_saves_the_run_and_begins_no_other(pretended: Path) -> None:
    Path("hold").touch()

    def interrupt() -> None:
        found = Path("runs").glob
        while not [f for f in found("*/a-0/metrics.jsonl") if f.read_text().count("\n") > 2]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    words = (str(pretended), "train.learning_rate=0.1", "--seeds", "2")
    with pytest.raises(Interrupted, match="the same command goes on with its runs"):
        compared(*words)
    assert [file.parent.name for file in Path("runs").glob("*/*/status.json")] == ["a-0"]
    Path("hold").unlink()
    assert compared(*words)["seeds"] == 2


@pytest.mark.slow
def test_a_run_that_fails_is_told_with_its_last_words(config: Path) -> None:
    (config.parent / "bad.py").write_text(
        "def credit(groups):\n    raise ValueError('not today')\n"
    )
    with pytest.raises(UsageError) as told:
        compared(f"{config} {SHORT}", "train.advantage=bad.py:credit")
    assert "b (train.advantage=bad.py:credit) failed with seed 0" in str(told.value)
    assert "bad.py:2: ValueError: not today" in str(told.value)


def test_an_override_is_said_to_be_a_candidate_of_its_own(pretended: Path) -> None:
    (pretended.parent / "b.yaml").write_text(CONFIG.replace("seed: 0", "") + "seed: 0\n")
    words = ["compare", f"a.yaml {SHORT}", f"b.yaml {SHORT} train.loss=gspo", "train.loss=cispo"]
    shown = CliRunner().invoke(app, [*words, "--seeds", "2"], catch_exceptions=False).stdout
    assert "c  train.loss=cispo   (all of a, with this)" in shown
    assert 'An override that belongs to a config stands in quotes with it: "b.yaml x=1"' in shown


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ((), "1 to compare; give from 2"),
        (("seed=7",), "b (seed=7) is the same as a"),
        (("eval.episodes=9",), "eval.episodes is 8 (a.yaml:"),
        (("reward.env=2.0",), "would measure different things"),
        (("name=x project=y",), "b (name=x project=y) is the same as a"),
        (("train.loss=grppo",), "Did you mean 'grpo'"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    config: Path, others: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ArtError) as told:
        compared(str(config), *others)
    assert message in str(told.value) and told.value.exit_code == 2
    assert not Path("runs").exists()
