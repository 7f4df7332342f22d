from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pretended_run
import pytest
from short_run import CONFIG, at_work_in
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.cli.sweep import _conclude
from art_cli.errors import ArtError, Interrupted, PreflightError, UsageError
from art_cli.lab import fleet
from art_cli.lab.study import TrialRecord

MAIN = "from art_cli.cli.main import main; main()"
SHORT = ("train.steps=6", "eval.every=1")


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
    monkeypatch.setattr(fleet, "LOOK_EVERY", 0.01)
    return config


def sweep(*words: str) -> Any:
    """Return what `art sweep` finds of these words. Raises what ends it."""
    done = CliRunner().invoke(app, ["sweep", *words, "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    return json.loads(done.stdout)


def calls(folder: Path) -> dict[str, list[list[str]]]:
    """Return with what each run of a sweep was started, by its name."""
    return {
        file.parent.name: [json.loads(line) for line in file.read_text().splitlines()]
        for file in sorted(folder.glob("*/calls"))
    }


def until_held(metrics: list[Path]) -> None:
    """Wait until the runs with these metrics are held."""
    while not all(f.exists() and len(f.read_text().splitlines()) > 2 for f in metrics):
        time.sleep(0.01)


def interrupted_when_held(metrics: list[Path]) -> threading.Thread:
    """Press Ctrl-C, from a thread, once the runs with these metrics are held."""

    def interrupt() -> None:
        until_held(metrics)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    return thread


def test_a_list_is_tried_once_each_the_bad_are_stopped_and_the_best_is_a_command(
    pretended: Path,
) -> None:
    Path("behind").write_text("0.01 0.02")
    found = sweep(str(pretended), *SHORT, "train.learning_rate=0.1,0.2,0.01,4e-3,0.02", "--name=s")
    first, *others = found["trials"]
    assert found["best"] == {"train.learning_rate": "0.2"} == first["point"]
    assert first["value"] == pytest.approx(6 * 0.2 + 0.1) and first["state"] == "done"
    [own, *_] = calls(Path("runs/s"))["t0-1000"]
    assert "train.learning_rate=4e-3" in own  # the config's own 0.004 goes first
    ended = {t["point"]["train.learning_rate"]: t["state"] for t in others}
    assert ended == {"4e-3": "done", "0.1": "done", "0.01": "stopped", "0.02": "stopped"}
    assert found["run"] == f"art run {pretended} {' '.join(SHORT)} train.learning_rate=0.2"
    compared = f"art compare '{pretended} {' '.join(SHORT)}' train.learning_rate=0.2 --seeds 8"
    assert found["compare"] == compared
    assert found["optimism"] == pytest.approx(0.1 * 1.18, abs=0.002)  # of the largest of 5 normals
    rates = "train.learning_rate=0.1,0.2,0.01,4e-3,0.02"
    again = CliRunner().invoke(app, ["sweep", str(pretended), *SHORT, rates, "--name=s"])
    told = [line.partition(":")[0] for line in again.stdout.splitlines()]
    assert again.exit_code == 0 and "The best: train.learning_rate=0.2" in again.stdout
    assert found["run"] in again.stdout and found["compare"] in again.stdout
    assert {"The best", "Train with it", "See the runs on a page"} <= set(told)


def test_where_no_trial_has_ended_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    failed: Any = [TrialRecord(number=0, point={"a": "1"}, state="failed", said="it is too hot")]
    known: Any = None  # nothing is asked of the space, the aim or the runs
    _conclude(failed, known, SimpleNamespace(metric="val/reward", seeds=(0,)), known, False)
    assert "no trial has ended" in capsys.readouterr().out


@pytest.mark.slow
def test_more_trials_go_on_and_what_is_done_is_not_run_again(pretended: Path) -> None:
    words = (str(pretended), *SHORT, "train.learning_rate=1e-3..1e-1:log", "train.loss=grpo,gspo")
    assert len(sweep(*words, "--trials=3")["trials"]) == 3
    [folder] = Path("runs").iterdir()
    before = calls(folder)
    rates = [
        float(t["point"]["train.learning_rate"]) for t in sweep(*words, "--trials=7")["trials"]
    ]
    assert len(rates) == len(set(rates)) == 7 and all(1e-3 <= rate <= 1e-1 for rate in rates)
    assert {name: calls(folder)[name] for name in before} == before


def test_each_seed_is_a_run_and_the_value_is_their_mean(pretended: Path) -> None:
    found = sweep(str(pretended), *SHORT, "train.learning_rate=0.1,0.2", "--seeds=2", "--name=s")
    best = found["trials"][0]
    assert best["values"] == pytest.approx([1.3, 1.3001])
    assert best["value"] == pytest.approx(1.30005)
    assert found["optimism"] == pytest.approx(1e-4 / 2 * 0.589, rel=0.02)  # sd/sqrt(2) is 1e-4 / 2
    assert sorted(calls(Path("runs/s"))) == ["t0-1000", "t0-1001", "t1-1000", "t1-1001"]


def test_a_failed_trial_is_told_and_the_sweep_goes_on(pretended: Path) -> None:
    found = sweep(str(pretended), *SHORT, "train.learning_rate=2.0,0.1,3.0,5.0,7.0")
    assert [t["state"] for t in found["trials"]] == ["done", *["failed"] * 4]
    assert "exit code 1. It said:\nthe learning rate is no good" in found["trials"][1]["said"]


def test_where_the_first_ones_all_fail_it_ends(pretended: Path) -> None:
    with pytest.raises(UsageError, match="3 trials were begun, and all have failed") as told:
        sweep(str(pretended), *SHORT, "train.learning_rate=2.0,3.0,5.0,7.0,0.1", "--name=s")
    assert "the learning rate is no good" in str(told.value)


def test_a_machine_that_is_not_ready_ends_it_and_the_trial_is_tried_again(pretended: Path) -> None:
    words = (str(pretended), *SHORT, "train.learning_rate=1e-7,0.1", "--name=s")
    for _ in range(2):
        with pytest.raises(PreflightError, match="t0 cannot be run here"):
            sweep(*words)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_saves_the_runs_and_the_same_command_goes_on(pretended: Path, jobs: str) -> None:
    words = (str(pretended), *SHORT, "train.loss=grpo,gspo", "--name=s", f"--jobs={jobs}")
    Path("hold").touch()
    held = [Path(f"runs/s/t{n}-1000/metrics.jsonl") for n in range(int(jobs))]
    thread = interrupted_when_held(held)
    with pytest.raises(Interrupted, match="the same command goes on"):
        sweep(*words)
    thread.join()
    Path("hold").unlink()
    assert [t["state"] for t in sweep(*words)["trials"]] == ["done", "done"]
    assert [len(given) for given in calls(Path("runs/s")).values()][: int(jobs)] == [2] * int(jobs)
    assert calls(Path("runs/s"))["t0-1000"][1][-1] == "--resume"


@pytest.mark.slow
def test_a_kill_leaves_no_run_behind_and_the_same_command_goes_on(pretended: Path) -> None:
    words = [str(pretended), *SHORT, "train.loss=grpo,gspo", "--name=s"]
    Path("hold").touch()
    code = f"from art_cli.lab import fleet; fleet.ART = {fleet.ART!r}; {MAIN}"
    process = subprocess.Popen([sys.executable, "-c", code, "sweep", *words])
    metrics = Path("runs/s/t0-1000/metrics.jsonl")
    until_held([metrics])

    def at_work() -> bool:
        return any("pretended_run" in line for line in at_work_in(pretended.parent))

    assert at_work()
    process.kill()
    process.wait()
    deadline = time.monotonic() + 300
    while at_work():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    Path("hold").unlink()
    assert [t["state"] for t in sweep(*words)["trials"]] == ["done", "done"]
    assert len(metrics.read_text().splitlines()) == 7  # nothing is there twice


def test_on_clusters_trials_go_side_by_side_and_are_stopped_there(pretended: Path) -> None:
    Path("behind").write_text("1e-3 2e-3")
    Path("hold").touch()

    def release() -> None:
        while not all(Path(f"runs/s/t{n}-1000/calls").exists() for n in (0, 1)):
            time.sleep(0.01)
        Path("hold").unlink()

    threading.Thread(target=release, daemon=True).start()  # else one may be over before the other
    found = sweep(
        *(str(pretended), *SHORT, "train.learning_rate=4e-3,0.1,1e-3,2e-3", "--name=s"),
        *("--on=one", "--on=two"),
    )
    assert found["best"] == {"train.learning_rate": "0.1"}
    runs = calls(Path("runs/s"))
    first, second = runs["t0-1000"][0], runs["t1-1000"][0]
    assert {first[-1], second[-1]} == {"one", "two"} and first[-2] == "--on"
    stopped = [t["number"] for t in found["trials"] if t["state"] == "stopped"]
    assert {2, 3} <= {*stopped}
    assert all(Path(f"runs/s/t{n}-1000/cancelled").exists() for n in stopped)


def test_who_lets_go_of_a_cluster_finds_the_trial_there(pretended: Path) -> None:
    words = (str(pretended), *SHORT, "train.loss=grpo,gspo", "--name=s")
    Path("hold").touch()
    thread = interrupted_when_held([Path("runs/s/t0-1000/metrics.jsonl")])
    with pytest.raises(Interrupted, match="On a cluster these go on: runs/s/t0-1000; `art cancel`"):
        sweep(*words, "--on=one")
    thread.join()
    Path("hold").unlink()
    assert [t["state"] for t in sweep(*words, "--on=two")["trials"]] == ["done", "done"]
    assert calls(Path("runs/s"))["t0-1000"][1][-3:] == ["--on", "one", "--attach"]
    assert calls(Path("runs/s"))["t1-1000"][0][-2:] == ["--on", "two"]


def test_machines_are_rented_for_all_trials_or_for_none(pretended: Path) -> None:
    words = (str(pretended), *SHORT, "train.learning_rate=0.1,0.2", "--name=s")
    rented = ("backend.use=skypilot", "backend.storage=/kept", "backend.resources={use_spot: true}")
    with pytest.raises(UsageError, match="each of the runs rents machines of its own"):
        sweep(*words, *rented)
    assert not Path("runs").exists()
    assert len(sweep(*words, *rented, "--yes")["trials"]) == 2
    assert calls(Path("runs/s"))["t0-1000"][0][-1] == "--yes"


def test_a_name_holds_one_sweep_and_one_process(pretended: Path) -> None:
    words = (str(pretended), *SHORT, "--name=s")
    sweep(*words, "train.learning_rate=0.1,0.2")
    with pytest.raises(UsageError, match="runs/s has a sweep of another config, other ranges"):
        sweep(*words, "train.learning_rate=0.1,0.3")
    database = sqlite3.connect("runs/s/sweep.db")
    assert database.execute("select count(*) from trials").fetchone() == (2,)
    database.close()


@pytest.mark.parametrize("seconds", [0.01, 60.0])  # until a run is looked at; it may end before
def test_a_metric_that_is_none_is_told_by_the_first_trial(
    pretended: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(fleet, "LOOK_EVERY", seconds)
    with pytest.raises(UsageError, match="Did you mean 'val/reward'"):
        sweep(str(pretended), *SHORT, "train.learning_rate=0.1,0.2", "--metric=val/rewrd")


@pytest.mark.slow
def test_a_real_sweep_stops_what_does_not_learn(config: Path) -> None:
    words = ("train.steps=6", "eval.every=2", "train.learning_rate=4.0e-3,1.0e-9", "--seeds=1")
    found = sweep(str(config), *words, "train.group_size=4,2")
    assert found["best"]["train.learning_rate"] == "4.0e-3"
    done = {t["state"] for t in found["trials"]}
    assert done <= {"done", "stopped"} and len(found["trials"]) == 4
    assert len([*Path("runs").glob("sweep-short-*/t*-1000/config.yaml")]) == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no key has a range; give one, as A,B,C or LOW..HIGH"),
        (("train.group_size=8",), "no key has a range"),
        (("train.lerning_rate=1e-4..1e-2",), "unknown key. Did you mean 'learning_rate'?"),
        (("train.loss=1..3",), "train.loss: expected one of"),
        (("train.loss=grpo,grppo",), "got 'grppo'. Did you mean 'grpo'?"),
        (("train.group_size=4.5..8",), "expected an integer of at least 2, got 4.5"),
        (("train.group_size=4..8:0.5",), "train.group_size takes integers, so its step must be"),
        (("train.group_size=8..4",), "the low end must be less than the high one"),
        (("train.group_size=4..many",), "4..many is no range; expected A,B,C or LOW..HIGH"),
        (("train.group_size=4,,8",), "a value is missing beside a comma"),
        (("train.group_size=4,8,4",), "4 is there twice"),
        (("train.group_size=",), "train.group_size=: it has no value"),
        (("train.learning_rate=0..1:log",), "must begin above 0"),
        (("train.learning_rate=-1..1",), "must be more than 0, got -1"),
        (("train.group_size=2,4", "train.group_size=2..8"), "is given two ranges"),
        (("eval.episodes=8,16",), "eval.episodes cannot be swept: held-out rewards of its trials"),
        (("seed=1,2",), "seed cannot be swept"),
        (("train.group_size=2,4", "eval=null"), "nothing is evaluated, as eval is null"),
        (("train.group_size=2,4", "--name", "a/b"), "project: expected a name of letters"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(
    config: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ArtError) as told:
        sweep(str(config), *words)
    assert message in str(told.value) and told.value.exit_code == 2
    assert not Path("runs").exists()
