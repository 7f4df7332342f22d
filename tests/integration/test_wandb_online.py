"""W&B shows a run while it goes on; a server that is slow or dies costs it no metric."""

from __future__ import annotations

from pathlib import Path

from loopback_wandb import LoopbackWandb
from tracked_run import OFFLINE, ended, in_step_6, killed_in_step_6, missing, online, start
from wandb_file import read_wandb

from art_cli.runs.trackers.wandb.tracker import FINISH_SECONDS, SLACK_SECONDS


def test_a_run_that_was_killed_online_goes_on_in_the_same_run_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    with LoopbackWandb() as server:
        killed_in_step_6(tmp_path, online(server))
        art = ended(start(tmp_path, "--resume", env=online(server)))
        (shown,) = server.runs.values()
        assert [row["training_step"] for row in shown.rows] == list(range(9))
        assert {row["_step"] for row in shown.rows} == set(range(9))
        model = server.models()[f"{art.run.id()}:last"]
        weights = art.run.checkpoint(8) / "adapter_model.safetensors"
        assert model.files["adapter_model.safetensors"] == weights.read_bytes()
        assert f"W&B: {server.url}/us/p/runs/{art.run.id()}" in art.output
        assert "uploading checkpoint 8 (" in art.output
        assert not list(art.run.root.glob("wandb/offline-*"))


def test_what_was_offline_comes_along_when_the_run_goes_on_online(tmp_path: Path) -> None:
    ended(start(tmp_path, "train.steps=4", env=OFFLINE))
    with LoopbackWandb() as server:
        art = ended(start(tmp_path, "--resume", env=online(server)))
        (shown,) = server.runs.values()
        assert missing(art, shown.rows) == []
        assert not list(art.run.root.glob("wandb/offline-*"))
        versions = [v for v in server.versions if v.type == "model"]
        ended(start(tmp_path, "--resume", env=online(server)))  # it has ended: nothing new
        assert missing(art, shown.rows) == []
        assert [v for v in server.versions if v.type == "model"] == versions
        assert "not" not in art.output.rpartition("W&B: uploading")[2]


def test_an_upload_that_takes_long_is_waited_for_while_the_server_answers(tmp_path: Path) -> None:
    with LoopbackWandb(slow=FINISH_SECONDS + SLACK_SECONDS + 1) as server:
        art = ended(start(tmp_path, "train.steps=1", "eval=null", env=online(server)))
        assert "adapter_model.safetensors" in server.models()[f"{art.run.id()}:last"].files
    assert "not" not in art.output.rpartition("W&B: uploading checkpoint 1")[2]


def test_a_server_that_dies_in_the_middle_costs_no_metric_and_little_time(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        art = in_step_6(tmp_path, online(server))
        server.die()
        (tmp_path / "hold").unlink()
        ended(art)
    assert len(art.run.read_metrics()) == 8 + 4
    (path,) = art.run.root.glob("wandb/run-*/*.wandb")
    assert missing(art, read_wandb(path).rows) == []
    assert "The rest: wandb sync --include-online runs/test/short/wandb/run-" in art.output
    assert "not all checkpoints are uploaded (the server does not answer)" in art.output
    assert f"wandb artifact put --type model --name us/test/{art.run.id()} --alias " in art.output
