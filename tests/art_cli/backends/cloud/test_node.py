"""What happens on the nodes of a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from short_run import CONFIG

from art_cli.backends.cloud.node import Keeper, ThisNode, interface_of
from art_cli.runs.directory import RunDir


def test_processes_know_their_place_among_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPILOT_NODE_IPS", "127.0.0.1\n10.0.0.9")
    monkeypatch.setenv("SKYPILOT_NODE_RANK", "1")
    first, second = ThisNode.here().places(4, port=21000)
    assert (first["RANK"], first["LOCAL_RANK"], second["RANK"]) == ("2", "0", "3")
    assert first["WORLD_SIZE"] == "4" and first["LOCAL_WORLD_SIZE"] == "2"
    assert (first["MASTER_ADDR"], first["MASTER_PORT"]) == ("127.0.0.1", "21000")
    assert "GLOO_SOCKET_IFNAME" not in first  # 10.0.0.9 is not here


def test_one_node_leaves_its_processes_to_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKYPILOT_NODE_IPS", raising=False)
    assert ThisNode.here().places(4, port=21000) == [{}]
    assert interface_of("127.0.0.1") == "lo"


def test_nodes_that_serve_take_no_part_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKYPILOT_NODE_IPS", "127.0.0.1 10.0.0.8 10.0.0.9")
    monkeypatch.setenv("SKYPILOT_NODE_RANK", "1")
    one, two = ThisNode.here(num_serving=1), ThisNode.here(num_serving=2)
    assert [place["RANK"] for place in one.places(4, port=21000)] == ["2", "3"]
    assert one.hosts(port=7) == ["http://10.0.0.9:7"] and not one.serves
    assert two.serves and len(two.hosts(port=7)) == 2
    monkeypatch.setenv("SKYPILOT_NODE_RANK", "0")
    assert ThisNode.here(num_serving=2).places(4, port=21000) == [{}]  # all of them on this machine


@pytest.mark.slow
def test_a_node_that_serves_needs_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = node(tmp_path, "--engine-nodes", "1", SKYPILOT_NODE_IPS="127.0.0.1")
    assert done.returncode == 2 and "ART_ENGINE_TOKEN is missing" in done.stderr


def node(folder: Path, *options: str, **places: str) -> subprocess.CompletedProcess[str]:
    """The module as a cluster runs it."""
    command = [sys.executable, "-m", "art_cli.backends.cloud.node", "config.yaml", *options]
    return subprocess.run(
        [*command, "--run", "test/short", "--runs-dir", "runs"],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if not k.startswith("SKYPILOT")} | places,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.slow
def test_a_run_is_kept_on_storage_and_goes_on_from_there(tmp_path: Path) -> None:
    for place in ("first", "second"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "config.yaml").write_text(CONFIG)
    storage = ("--storage", str(tmp_path / "kept"), "--resume")
    done = node(tmp_path / "first", *storage)
    assert done.returncode == 0, done.stderr
    run = RunDir(tmp_path / "first" / "runs" / "test" / "short")
    assert run.read_exit() == 0 and run.state() == "done"
    half = tmp_path / "second" / "runs" / "test" / "short" / "checkpoints" / "9"
    half.mkdir(parents=True)  # of a machine that was taken away
    again = node(tmp_path / "second", *storage)  # another machine: nothing is left to do
    assert again.returncode == 0 and "going on after step 8" in again.stdout, again.stderr
    assert not half.exists()


def test_how_the_run_ended_is_noted(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG.replace("steps: 8", "stepps: 8"))
    done = node(tmp_path)
    run = RunDir(tmp_path / "runs" / "test" / "short")
    assert done.returncode == 2 and run.read_exit() == 2 and "stepps" in done.stderr


def test_storage_that_refuses_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDir.create(tmp_path / "run")
    (tmp_path / "file").write_text("")
    keeper = Keeper(run, tmp_path / "file" / "kept")
    keeper.look(now=True)
    assert "warning: cannot write to" in capsys.readouterr().out


def test_a_run_elsewhere_is_running_until_its_end_is_known(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    run.write_status("running", 3, 8)
    assert run.state() == "killed"
    run.cloud.write_text(json.dumps({"job": 1}))
    assert run.state() == "running"
    run.write_exit(1)
    assert run.state() == "killed"
