"""A managed job as it is seen from here: SkyPilot says how it ended, its storage what it left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from art_cli.backends.cloud import run as remote
from art_cli.backends.cloud import skypilot, snapshots
from art_cli.backends.cloud.node import main
from art_cli.errors import ArtError, UsageError
from art_cli.runs.directory import RunDir


@pytest.fixture
def kept(tmp_path: Path) -> RunDir:
    """A run on its node, whose first life has ended with exit code 4; all of it is kept."""
    run = RunDir.create(tmp_path / "node" / "p" / "n")
    run.metrics.write_text("one line\n")
    run.write_exit(4)
    snapshots.save(run.root, tmp_path / "kept" / "p" / "n")
    return run


@pytest.fixture
def here(tmp_path: Path) -> RunDir:
    """The same run, where it was sent from."""
    run = RunDir.create(tmp_path / "runs" / "p" / "n")
    run.cloud.write_text(json.dumps({"job": 7, "storage": str(tmp_path / "kept")}))
    return run


@pytest.mark.parametrize(
    ("state", "code"), [("FAILED", 4), ("FAILED_SETUP", 1), ("FAILED_NO_RESOURCE", 1)]
)
def test_a_life_that_never_began_has_not_the_exit_code_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, kept: RunDir, here: RunDir, state: str, code: int
) -> None:
    monkeypatch.setattr(skypilot, "follow_managed", lambda job: state)
    said: list[str] = []
    assert remote.watch(remote.read_sent(here), here, said.append) == code
    assert here.metrics.exists() and here.read_exit() == code
    assert any(state in line for line in said) is (code == 1)


def test_a_life_that_says_nothing_has_no_exit_code_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: RunDir, here: RunDir
) -> None:
    """The next one begins, and is killed before it has kept anything."""
    monkeypatch.setattr("art_cli.backends.cloud.node._wait", lambda *_: pytest.exit("killed"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: None)
    words = ["c.yaml", "--run", "p/n", "--runs-dir", str(tmp_path / "second"), "--storage"]
    with pytest.raises(pytest.exit.Exception):
        main([*words, str(tmp_path / "kept")])
    monkeypatch.setattr(skypilot, "follow_managed", lambda job: "FAILED")
    assert remote.watch(remote.read_sent(here), here, print) == 1
    assert here.metrics.read_text() == "one line\n"


def test_a_job_that_is_cancelled_brings_back_what_its_storage_has(
    monkeypatch: pytest.MonkeyPatch, kept: RunDir, here: RunDir
) -> None:
    cancelled: list[Any] = []
    monkeypatch.setattr(skypilot, "cancel_managed", cancelled.append)
    remote.cancel(here, print)
    assert cancelled == [7] and here.metrics.read_text() == "one line\n"
    assert here.read_exit() == 4


def test_a_job_that_is_cancelled_ends_even_where_nothing_can_be_brought_back(
    monkeypatch: pytest.MonkeyPatch, here: RunDir
) -> None:
    def nobody_has_one(*_: Any) -> bool:
        raise ArtError("no machine to read the storage")

    monkeypatch.setattr(skypilot, "cancel_managed", lambda job: None)
    monkeypatch.setattr(remote, "bring_stored", nobody_has_one)
    said: list[str] = []
    remote.cancel(here, said.append)
    assert "warning: no machine to read the storage" in said and here.read_exit() == 1


def test_the_job_of_a_run_is_not_cancelled_from_a_copy_of_it(
    monkeypatch: pytest.MonkeyPatch, here: RunDir, tmp_path: Path
) -> None:
    cancelled: list[Any] = []
    monkeypatch.setattr(skypilot, "cancel_managed", cancelled.append)
    monkeypatch.setattr(remote, "_bring_managed", lambda *_: True)
    sent = {"job": 7, "storage": str(tmp_path / "kept"), "root": str(here.root)}
    here.cloud.write_text(json.dumps(sent))
    copy = RunDir(shutil.copytree(here.root, tmp_path / "runs" / "p" / "copy"))
    with pytest.raises(UsageError, match=f"is a copy of {here.root}"):
        remote.cancel(copy, print)
    moved = RunDir(here.root.rename(tmp_path / "runs" / "p" / "moved"))
    remote.cancel(moved, print)
    assert cancelled == [7]


@pytest.mark.parametrize(
    "sent",
    [
        {"job": "7"},
        {"job": 7, "cluster": "-oProxyCommand=touch x"},
        {"job": 7, "cluster": ["c"]},
        {"job": 7, "more": 1},
        [],
    ],
)
def test_a_record_that_was_not_written_here_is_not_obeyed(here: RunDir, sent: Any) -> None:
    here.cloud.write_text(json.dumps(sent))
    with pytest.raises(UsageError, match=r"cloud\.json is damaged"):
        remote.cancel(here, print)
