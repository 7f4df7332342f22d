"""W&B shows a real run whole, once, and costs it nothing: offline, synced, resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from loopback_judge import LoopbackJudge
from loopback_wandb import LoopbackWandb
from short_run import Art
from tracked_run import OFFLINE, SECRET, ended, killed_in_step_6, missing, session, start, sync
from wandb_file import WandbFile, read_wandb, table_of

from art_cli.runs.checkpoint import best_checkpoint

# ---------------------------------------------------------------- a whole run, offline


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Art]:
    """A run with a judge and an adapter; its config has a secret of the environment."""
    with LoopbackJudge() as judge:
        more = (
            f"judge: {{model: {judge.model}, api_base: {judge.api_base}, api_key_env: JUDGE_KEY, "
            "rubric: 'Say what ${oc.env:WORD} is'}\n"
            "reward: {env: 1.0, judge: 0.1}\n"
        )
        env = OFFLINE | {"WORD": SECRET, "JUDGE_KEY": SECRET}
        yield ended(start(tmp_path_factory.mktemp("whole"), env=env, more=more))


@pytest.fixture(scope="module")
def logged(whole: Art) -> WandbFile:
    return read_wandb(session(whole))


@pytest.mark.slow
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
    assert all(r["judge"].startswith("because of ") for r in table)
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_that_was_killed_offline_is_whole_in_its_last_session(tmp_path: Path) -> None:
    killed_in_step_6(tmp_path, OFFLINE)
    art = ended(start(tmp_path, "--resume", env=OFFLINE))
    found = read_wandb(session(art))
    assert missing(art, found.rows) == []
    assert [len(row) for row in found.rows if "train/samples/path" in row] and found.artifacts
    assert len(list(art.run.root.glob("wandb/replaced-offline-run-*"))) == 1


@pytest.mark.slow
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
