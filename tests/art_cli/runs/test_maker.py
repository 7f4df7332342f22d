"""A run directory that this account did not make is told before its code is run."""

from pathlib import Path

import pytest

from art_cli.cli.inputs import load
from art_cli.runs.directory import RunDir
from art_cli.runs.maker import MARK, is_own, write_config

CONFIG = "env: {use: 'bad.py:Env'}\nmodel: {base: tiny}\ntrain: {steps: 1}\n"
OTHERS = """
agent: {use: function, function: "f.py:f"}
judge: {model: x, use: "a.py:C"}
engine: {use: "a.py:C"}
deploy: {use: "a.py:C"}
track: {custom: {my-own: {use: "a.py:C"}}}
backend: {use: local}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    Path("bad.py").write_text("raise RuntimeError('imported')\n")
    return RunDir.create(tmp_path / "runs" / "p" / "r")


def told(run: RunDir, capsys: pytest.CaptureFixture[str], *, is_run: bool = False) -> str:
    """Return what stands on the screen at the moment at which the env is imported."""
    with pytest.raises(Exception, match="imported"):
        load([str(run.config)], is_run=is_run)
    return capsys.readouterr().err


def test_only_the_config_that_this_account_wrote_is_its_own(run: RunDir) -> None:
    write_config(run, CONFIG)
    assert is_own(run)
    run.config.write_text(CONFIG.replace("bad.py", "worse.py"))
    assert not is_own(run)


def test_another_account_has_another_key(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(run, CONFIG)
    monkeypatch.setenv("XDG_STATE_HOME", str(run.root / "other"))
    assert not is_own(run)
    (run.root / MARK).unlink()
    assert not is_own(run)


def test_a_run_of_others_is_told_with_its_code(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    run.config.write_text(CONFIG)
    run.config.write_text(
        CONFIG.replace("{steps: 1}", "{steps: 1, loss: gspo, advantage: 'a.py:f'}") + OTHERS
    )
    said = told(run, capsys)
    assert "train.advantage: a.py:f" in said and "train.loss" not in said
    assert "agent.function: f.py:f" in said and "agent.use" not in said and "backend" not in said
    for key in ("judge.use", "engine.use", "deploy.use", "track.custom.my-own.use"):
        assert f"{key}: a.py:C" in said
    assert "was not made by `art run` of this account" in said and "env.use: bad.py:Env" in said
    write_config(run, CONFIG)
    assert told(run, capsys) == ""


def test_a_config_that_the_user_wrote_is_not_told(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    own = RunDir(run.root.parent / "folder-of-the-user")
    own.root.mkdir()
    own.config.write_text(CONFIG)
    assert told(own, capsys) == ""
    assert "env.use" in told(own, capsys, is_run=True)  # it was named as a run directory
