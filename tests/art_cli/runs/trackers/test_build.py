"""What `track` asks for is looked for before anything costly starts, and named at its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import art_cli.runs.trackers.build as build
from art_cli.backends.cloud.task import extras, secret_names
from art_cli.cli.main import app
from art_cli.config.load import LoadedExperiment, load_experiment
from art_cli.errors import ConfigError
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.build import check_trackers, make_trackers

CONFIG = """
env: {use: tic_tac_toe}
model: {base: tiny, adapter: null}
sft: {}
train: {steps: 1}
"""
ALL = """
track:
  otlp: {endpoint: "http://127.0.0.1:9/v1/traces"}
  wandb: {weave: true, mode: auto}
  mlflow: {}
  tensorboard: true
  trackio: true
"""


def loaded(folder: Path, track: str) -> LoadedExperiment:
    path = folder / "config.yaml"
    path.write_text(CONFIG + track)
    return load_experiment([path])


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None)


@pytest.mark.usefixtures("nothing_installed")
def test_missing_packages_are_named_at_their_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        check_trackers(loaded(tmp_path, ALL))
    at = {line.split("config.yaml:")[1] for line in caught.value.problems}
    assert at == {
        "9:11: track.wandb.weave: needs a package: pip install 'art-cli[otlp]'",
        "8:3: track.otlp: needs a package: pip install 'art-cli[otlp]'",
        "10:3: track.mlflow: needs a package: pip install 'art-cli[mlflow]'",
        "11:3: track.tensorboard: needs a package: pip install 'art-cli[tensorboard]'",
        "12:3: track.trackio: needs a package: pip install 'art-cli[trackio]'",
    }


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize("command", ["run", "validate", "doctor"])
def test_commands_say_what_is_missing_before_they_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    loaded(tmp_path, "track: {trackio: true}\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, "config.yaml"])
    said = f"{result.output} {result.exception}"
    assert result.exit_code != 0
    assert "config.yaml:6:9: track.trackio: needs a package: pip install 'art-cli[trackio]'" in said
    assert not (tmp_path / "runs").exists()


def test_a_cluster_gets_the_packages_and_the_variables(tmp_path: Path) -> None:
    found = loaded(tmp_path, ALL)
    assert extras(found.experiment) == "[mlflow,otlp,tensorboard,trackio]"
    assert {"MLFLOW_TRACKING_URI", "WANDB_API_KEY"} <= set(secret_names(found))


def test_a_tracker_that_cannot_be_opened_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard", reason="pip install 'art-cli[tensorboard]'")
    cfg = loaded(tmp_path, "track: {mlflow: {uri: 'nowhere://'}, tensorboard: true}\n").experiment
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    run.metrics.write_text('{"training_step": 1, "train/reward": 0.5}\n')
    said: list[str] = []
    for tracker in make_trackers(cfg, run, {}, said.append):
        tracker.finish("done")
    assert [line.partition(" row")[0] for line in said[-1:]] == ["MLflow lacks 1"]
    assert list((run.root / "tensorboard").iterdir())
    assert (run.root / "trackers" / "tensorboard.txt").read_text() == "train-1\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 / 0", "mine.py:6: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "mine.py:6: SystemExit: 3"),
        ("row.clear()", ""),
    ],
)
def test_a_tracker_of_ones_own_that_fails_is_told_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "class Mine:\n    def __init__(self, settings, run):\n        self.run = run\n"
        "    def take(self, row):\n        assert row\n"
        f"        {line}\n    def close(self, state):\n        (self.run.root / state).touch()\n"
    )
    cfg = loaded(tmp_path, "track: {custom: {mine: {use: 'mine.py:Mine'}}}\n").experiment
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    said: list[str] = []
    [tracker] = make_trackers(cfg, run, {}, said.append)
    row = {"training_step": 1, "train/reward": 0.5}
    tracker.log(row)
    tracker.finish("done")
    assert row["training_step"] == 1 and (run.root / "done").exists()
    if says:
        assert said[-1].startswith("custom.mine lacks 1 row of the run: ") and says in said[-1]
    else:
        assert not said and (run.root / "trackers" / "custom.mine.txt").read_text() == "train-1\n"
