"""Every trajectory of a real run is a trace in Weave; a server that fails costs the run nothing."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from loopback_wandb import LoopbackWandb
from short_run import CONFIG, Art, held_after, until, with_pauses

from art_cli.runs.trackers.wandb.weave import SPLITS, calls_of
from art_envs.order_desk import OrderDesk

WEAVE = "track: {wandb: {weave: true}}\n"


def start(folder: Path, server: LoopbackWandb, *arguments: str, config: str = CONFIG) -> Art:
    (folder / "config.yaml").write_text(config + WEAVE)
    url, key = server.url, server.key
    env = {"HOME": str(folder), "WANDB_BASE_URL": url, "WANDB_API_KEY": key}
    return Art(folder, "config.yaml", *arguments, env=env)


def ended(art: Art) -> Art:
    assert art.wait() == 0, art.output
    return art


def rows_of(art: Art) -> list[dict[str, Any]]:
    """All trajectories of a run."""
    run = art.run
    files = [(step, split) for split in SPLITS for step in run.trajectory_steps(split)]
    return [row for file in files for row in run.read_trajectories(*file)]


def traces(server: LoopbackWandb) -> list[dict[str, Any]]:
    return [call for call in server.calls.values() if call["parent_id"] is None]


@pytest.mark.slow
def test_each_trajectory_is_a_trace_with_its_turns(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        art = ended(start(tmp_path, server, "train.steps=2", "eval.every=1"))
    rows = rows_of(art)
    assert len(traces(server)) == len(rows) == 2 * 16 + 3 * 8
    assert server.num_calls == len(server.calls) == len(rows) + sum(r["num_turns"] for r in rows)
    for row in rows:
        trace = next(calls_of(row, "us/p", art.run.id()))
        shown = server.calls[trace["id"]]
        assert shown["output"]["reward"] == row["reward"] and shown["wb_run_step"] == row["step"]
        assert shown["wb_run_id"] == f"us/p/{art.run.id()}"
        inside = [c for c in server.calls.values() if c["parent_id"] == trace["id"]]
        turns = sorted(inside, key=lambda c: c["started_at"])
        said = [m for t in turns for m in (*t["inputs"]["messages"], t["output"])]
        assert said == row["messages"][: len(said)] and len(said) >= 2 * row["num_turns"]
        assert [t["attributes"]["policy_version"] for t in turns] == row["policy_versions"]


def test_tool_calls_are_in_their_turns_and_what_a_judge_said_is_with_the_reward() -> None:
    (said,) = OrderDesk.demonstrations(OrderDesk.Config(), 1)
    row: dict[str, Any] = {
        "step": 3,
        "split": "val",
        "group": 0,
        "index": 1,
        "scenario_id": "val-7",
        "reward": None,
        "metrics": {},
        "stop_reason": "error",
        "error": "KeyError: 'x'",
        "logs": ["it was polite"],
        "policy_versions": [2] * sum(m["role"] == "assistant" for m in said),
        "messages": said,
    }
    trace, *inside = calls_of(row, "us/p", "run")
    assert trace["exception"] == "KeyError: 'x'" and trace["output"]["judge"] == ["it was polite"]
    assert trace["display_name"] == "val-7 #1" and trace["inputs"]["messages"] == said[:2]
    called = [c for m in said for c in m.get("tool_calls", [])]
    results = [m["content"] for m in said if m["role"] == "tool"]
    tools = [c for c in inside if c["op_name"] != "turn"]
    assert [(c["op_name"], c["inputs"], c["output"]) for c in tools] == [
        (call["name"], call["arguments"], result)
        for call, result in zip(called, results, strict=True)
    ]
    assert called[0]["name"] == "get_order" and len(called) > 1
    turns = {c["id"]: c for c in inside if c["op_name"] == "turn"}
    assert {c["parent_id"] for c in turns.values()} == {trace["id"]}
    callers = [turns[c["parent_id"]]["output"]["tool_calls"] for c in tools]
    assert callers == [[call] for call in called]


def test_a_very_long_message_is_shortened() -> None:
    said = [{"role": "user", "content": "x" * 50_000}]
    row = {"step": 1, "split": "train", "group": 0, "index": 0, "policy_versions": []}
    row |= {"scenario_id": "s", "reward": 1.0, "metrics": {}, "stop_reason": "env", "error": None}
    (trace,) = calls_of({**row, "logs": [], "messages": said}, "us/p", "run")
    assert "30000 characters left out" in trace["inputs"]["messages"][0]["content"]


@pytest.mark.slow
def test_after_a_kill_resume_sends_what_is_missing_and_nothing_else(tmp_path: Path) -> None:
    config = with_pauses(tmp_path, CONFIG)
    with LoopbackWandb() as server:
        art = start(tmp_path, server, config=config)
        held_after(5, art)
        until(lambda: len(traces(server)) > 16 * 4, art)
        art.signal(signal.SIGKILL)
        art.wait()
        (tmp_path / "hold").unlink()
        art = ended(start(tmp_path, server, "--resume", config=config))
        rows = rows_of(art)
        assert len(traces(server)) == len(rows)
        again = server.num_calls - len(server.calls)
        assert again <= 16 * 3, "of the file that was on its way"


@pytest.mark.slow
def test_a_server_that_refuses_or_is_silent_costs_no_metric_and_little_time(tmp_path: Path) -> None:
    with LoopbackWandb() as server:
        server.traces_say = 403
        art = ended(start(tmp_path, server, "train.steps=2"))
        (shown,) = server.runs.values()
        assert [row["training_step"] for row in shown.rows] == [0, 1, 2]
        assert art.output.count("Weave is switched off") == 1 and not server.calls
        assert "HTTP 403" in art.output and "Weave lacks the trajectories of 4 files" in art.output
        server.traces_say = 503
        art = ended(start(tmp_path, server, "train.steps=3", "--resume"))
        assert "HTTP 503" in art.output and "lacks the trajectories of 6 files" in art.output
        server.traces_say = None
        art = ended(start(tmp_path, server, "train.steps=3", "--resume"))
        assert len(traces(server)) == len(rows_of(art))


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle_does_not_hold_up_the_end(tmp_path: Path) -> None:
    config = with_pauses(tmp_path, CONFIG)
    with LoopbackWandb() as server:
        art = start(tmp_path, server, config=config)
        held_after(5, art)
        server.die()
        (tmp_path / "hold").unlink()
        ended(art)
    assert len(art.run.read_metrics()) == 8 + 4
    assert "Weave lacks the trajectories of" in art.output
