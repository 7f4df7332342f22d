"""Every trajectory of a real run is in Weave; a server that fails costs the run nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from loopback_wandb import LoopbackWandb
from short_run import CONFIG, Art, held_after, until, with_pauses

pytest.importorskip("opentelemetry.exporter.otlp", reason="pip install 'art-cli[otlp]'")
pytestmark = pytest.mark.slow

WEAVE = "track: {wandb: {weave: true}}\n"


def start(folder: Path, server: LoopbackWandb, *arguments: str, config: str = CONFIG) -> Art:
    (folder / "config.yaml").write_text(config + WEAVE)
    url, key = server.url, server.key
    env = {"HOME": str(folder), "WANDB_BASE_URL": url, "WANDB_API_KEY": key}
    env["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=of-another-collector"
    return Art(folder, "config.yaml", *arguments, env=env)


def ended(art: Art) -> Art:
    assert art.wait() == 0, art.output
    return art


def rows_of(art: Art) -> list[dict[str, Any]]:
    """All trajectories of a run."""
    run = art.run
    files: Any = [
        (step, split) for split in ("train", "val") for step in run.trajectory_steps(split)
    ]
    return [row for file in files for row in run.read_trajectories(*file)]


def episodes(server: LoopbackWandb) -> list[dict[str, Any]]:
    spans = server.spans.values()
    return [s for s in spans if s.get("gen_ai.operation.name") == "invoke_agent"]


def test_each_trajectory_is_there_with_its_turns(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        art = ended(start(tmp_path, server, "train.steps=2", "eval.every=1"))
    rows, shown = rows_of(art), episodes(server)
    assert len(shown) == len(rows) == 2 * 16 + 3 * 8
    place = ("art.split", "art.step", "art.group", "art.index")
    by_place = {tuple(span[key] for key in place): span for span in shown}
    for row in rows:
        span = by_place[row["split"], row["step"], row["group"], row["index"]]
        assert span["art.reward"] == row["reward"]
        assert span["wandb.wb_run_id"] == art.run.id()
        inside = [s for s in server.spans.values() if s["parent"] == span["id"]]
        turns = sorted(inside, key=lambda s: s["begin"])
        assert [turn["art.policy_version"] for turn in turns] == row["policy_versions"]
        used = sum(turn["gen_ai.usage.output_tokens"] for turn in turns)
        assert used == row["num_sampled"]
    assert len(server.spans) == server.num_spans, "nothing is sent twice"
    assert "x-key" not in server.trace_headers


def test_after_a_kill_resume_sends_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    config = with_pauses(tmp_path, CONFIG)
    with LoopbackWandb() as server:
        art = start(tmp_path, server, config=config)
        held_after(5, art)
        until(lambda: len(episodes(server)) > 16 * 4, art)
        art.signal(signal.SIGKILL)
        art.wait()
        (tmp_path / "hold").unlink()
        art = ended(start(tmp_path, server, "--resume", config=config))
        assert len(episodes(server)) == len(rows_of(art))
        again = server.num_spans - len(server.spans)
        assert again <= 1 + 4 + 16 * 3, "of the file that was on its way"


def test_a_server_that_refuses_costs_no_metric_and_a_resume_sends_all(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        server.traces_say = 403
        art = ended(start(tmp_path, server, "train.steps=2"))
        (shown,) = server.runs.values()
        assert [row["training_step"] for row in shown.rows] == [0, 1, 2]
        assert art.output.count("Weave: HTTP 403") == 1 and not server.spans
        assert "Weave lacks 4 rows of the run: HTTP 403" in art.output
        server.traces_say = None
        art = ended(start(tmp_path, server, "train.steps=3", "--resume"))
        assert len(episodes(server)) == len(rows_of(art))


def test_a_server_that_dies_in_the_middle_does_not_hold_up_the_end(tmp_path: Path) -> None:
    config = with_pauses(tmp_path, CONFIG)
    with LoopbackWandb() as server:
        art = start(tmp_path, server, config=config)
        held_after(5, art)
        server.die()
        (tmp_path / "hold").unlink()
        began = time.monotonic()
        ended(art)
        assert time.monotonic() - began < 120
    assert len(art.run.read_metrics()) == 8 + 4
    assert "Weave lacks " in art.output
