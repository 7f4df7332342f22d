"""W&B shows a real run whole, once, and costs it nothing: offline, online, synced, resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from loopback_judge import LoopbackJudge
from loopback_wandb import LoopbackWandb
from short_run import CONFIG, Art, until, with_pauses
from wandb_file import WandbFile, read_wandb, table_of

from art_cli.checkpoint import best_checkpoint
from art_cli.trackers.wandb import FINISH_SECONDS, SLACK_SECONDS

SECRET = "nobody-may-see-this"
ADAPTER = CONFIG.replace("adapter: null", "adapter: {rank: 4}").replace(
    "optimizer: muon}", "optimizer: muon, weights: all}"
)
OFFLINE = {"WANDB_MODE": "offline", "WANDB_API_KEY": SECRET}


def start(folder: Path, *arguments: str, env: dict[str, str], more: str = "") -> Art:
    config = with_pauses(folder, ADAPTER) + "track: {wandb: {entity: us}}\n" + more
    (folder / "config.yaml").write_text(config)
    return Art(folder, "config.yaml", *arguments, env={"HOME": str(folder)} | env)


def ended(art: Art) -> Art:
    assert art.wait() == 0, art.output
    return art


def online(server: LoopbackWandb) -> dict[str, str]:
    url, key = server.url, server.key
    return {"WANDB_MODE": "online", "WANDB_BASE_URL": url, "WANDB_API_KEY": key}


def sync(art: Art, server: LoopbackWandb) -> None:
    """By the command that the run has said last."""
    command = art.output.rpartition("Upload it: ")[2].splitlines()[0].split()
    assert command[:2] == ["wandb", "sync"]
    env = os.environ | online(server) | {"HOME": str(art.folder)}
    wandb = [sys.executable, "-m", "wandb", *command[1:]]
    subprocess.run(wandb, cwd=art.folder, env=env, check=True, timeout=60, capture_output=True)


def session(art: Art) -> Path:
    """The file that waits for `wandb sync`: there is always one at the most."""
    (path,) = art.run.root.glob("wandb/offline-run-*/*.wandb")
    return path


def missing(art: Art, rows: list[dict[str, Any]]) -> list[str]:
    """What of metrics.jsonl is not in the rows of W&B, where each step has to be one row."""
    by_step = {row["training_step"]: row for row in rows}
    assert len(by_step) == len(rows) and sorted(by_step) == [r["training_step"] for r in rows]
    return [
        f"{key} of step {row['training_step']}"
        for row in art.run.read_metrics()
        for key, value in row.items()
        if by_step[row["training_step"]].get(key) != value
    ]


# ---------------------------------------------------------------- a whole run, offline


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Art]:
    """A run with a judge and an adapter; its config has a secret of the environment."""
    with LoopbackJudge() as judge:
        more = (
            f"judge: {{model: {judge.model}, api_base: {judge.api_base}, api_key_env: JUDGE_KEY, "
            "rubric: 'Say what ${oc.env:WORD} is'}\n"
            "reward: {env: 1.0, ruler: 0.1}\n"
        )
        env = OFFLINE | {"WORD": SECRET, "JUDGE_KEY": SECRET}
        yield ended(start(tmp_path_factory.mktemp("whole"), env=env, more=more))


@pytest.fixture(scope="module")
def logged(whole: Art) -> WandbFile:
    return read_wandb(session(whole))


def test_every_metric_of_metrics_jsonl_is_there(whole: Art, logged: WandbFile) -> None:
    assert len(whole.run.read_metrics()) == 8 + 4  # steps and evaluations
    assert missing(whole, logged.rows) == []
    assert logged.steps == list(range(9)) and ("*", "training_step") in logged.definitions


def test_the_config_is_that_of_the_run_directory(whole: Art, logged: WandbFile) -> None:
    config = {key: value for key, value in logged.config.items() if key != "_wandb"}
    assert config == yaml.safe_load(whole.run.config.read_text())
    assert config["judge"]["rubric"] == "Say what ${oc.env:WORD} is"


def test_no_secret_is_in_any_file_of_the_run(whole: Art) -> None:
    files = [p for p in whole.run.root.rglob("*") if p.is_file()]
    assert session(whole) in files
    assert [p for p in files if SECRET.encode() in p.read_bytes()] == []


def test_each_evaluation_has_a_table_of_the_same_scenarios(whole: Art, logged: WandbFile) -> None:
    tables = [table_of(session(whole), logged.rows[n], "val/samples") for n in (0, 3, 6, 8)]
    for table, step in zip(tables, (0, 3, 6, 8), strict=True):
        rows = whole.run.read_trajectories(step, "val")[:8]
        assert [r["scenario"] for r in table] == [r["scenario"] for r in tables[0]]
        assert [r["reward"] for r in table] == [r["reward"] for r in rows]
        assert {r["step"] for r in table} == {step} and {r["ended by"] for r in table} == {"env"}
        said = rows[0]["messages"][-1]["content"]
        assert table[0]["conversation"].endswith(f"[assistant] {said}")
    assert sum("val/samples/path" in row for row in logged.rows) == 4


def test_a_table_of_training_shows_one_group_with_the_judges_words(
    whole: Art, logged: WandbFile
) -> None:
    (row,) = [row for row in logged.rows if "train/samples/path" in row]
    table = table_of(session(whole), row, "train/samples")
    assert row["training_step"] == 1 and len(table) == 4
    assert len({r["scenario"] for r in table}) == 1
    assert all(r["judge"].startswith("RULER: because of ") for r in table)
    rewards = [r["reward"] for r in table]
    assert rewards == sorted(rewards, reverse=True)


def test_best_and_last_checkpoint_are_versions_of_one_model(whole: Art, logged: WandbFile) -> None:
    best = best_checkpoint(whole.run)
    expected = {8: {"last", "step-8"}}
    expected[best or 0] = expected.get(best or 0, set()) | {"best", f"step-{best}"}
    found = {a.metadata["step"]: set(a.aliases) - {"latest"} for a in logged.artifacts}
    assert found == expected
    for artifact in logged.artifacts:
        assert (artifact.name, artifact.type) == (whole.run.id(), "model")
        assert {"adapter_config.json", "adapter_model.safetensors"} <= artifact.files.keys()
        assert not {"optimizer.pt", "progress.json"} & artifact.files.keys()
        for name, path in artifact.files.items():
            original = whole.run.checkpoint(artifact.metadata["step"]) / name
            assert path.samefile(original)  # a link: it stays when the checkpoint is removed


def test_wandb_sync_shows_the_same(whole: Art, logged: WandbFile) -> None:
    with LoopbackWandb() as server:
        sync(whole, server)
        (shown,) = server.runs.values()
        assert missing(whole, shown.rows) == []
        assert shown.config["seed"]["value"] == 0 and shown.exit_code == 0
        assert logged.rows[3]["val/samples/path"] in shown.files
        for artifact in logged.artifacts:
            for alias in set(artifact.aliases) - {"latest"}:  # both say that they are
                files = server.models()[f"{artifact.name}:{alias}"].files
                assert files == {n: p.read_bytes() for n, p in artifact.files.items()}


# ---------------------------------------------------------------- parts


def in_step_6(folder: Path, env: dict[str, str]) -> Art:
    art = start(folder, env=env)
    until(lambda: "warming up" in art.output, art)  # the demonstrations are made, at full speed
    (folder / "pause").write_text("0.2")
    until(lambda: art.run.trajectory_steps("train")[-1:] == [5], art)
    return art


def killed_in_step_6(folder: Path, env: dict[str, str]) -> None:
    art = in_step_6(folder, env)
    art.signal(signal.SIGKILL)
    assert art.wait() == -signal.SIGKILL
    (folder / "pause").unlink()


def test_a_run_that_was_killed_offline_is_whole_in_its_last_session(tmp_path: Path) -> None:
    killed_in_step_6(tmp_path, OFFLINE)
    art = ended(start(tmp_path, "--resume", env=OFFLINE))
    found = read_wandb(session(art))
    assert missing(art, found.rows) == []
    assert [len(row) for row in found.rows if "train/samples/path" in row] and found.artifacts
    assert len(list(art.run.root.glob("wandb/replaced-offline-run-*"))) == 1


def test_sessions_that_are_synced_one_by_one_show_each_step_once(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        sync(ended(start(tmp_path, "train.steps=4", env=OFFLINE)), server)
        art = ended(start(tmp_path, "--resume", env=OFFLINE))
        sync(art, server)
        (shown,) = server.runs.values()
        assert [row["training_step"] for row in shown.rows] == list(range(9))
        assert missing(art, shown.rows) == []
        assert "adapter_model.safetensors" in server.models()[f"{art.run.id()}:step-8"].files
        assert server.models()[f"{art.run.id()}:last"].aliases >= {"last", "step-8"}


# ---------------------------------------------------------------- online


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
        (tmp_path / "pause").unlink()
        began = time.monotonic()
        ended(art)
        assert time.monotonic() - began < 15  # three steps and two evaluations in it
    assert len(art.run.read_metrics()) == 8 + 4
    (path,) = art.run.root.glob("wandb/run-*/*.wandb")
    assert missing(art, read_wandb(path).rows) == []
    assert "The rest: wandb sync --include-online runs/test/short/wandb/run-" in art.output
    assert "not all checkpoints are uploaded (the server does not answer)" in art.output
    assert f"wandb artifact put --type model --name us/test/{art.run.id()} --alias " in art.output
