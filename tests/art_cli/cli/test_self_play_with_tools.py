"""Self-play with tools, and with an agent of one's own, from a config to its evaluation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import counting
import pytest
from in_folder import art
from loopback_judge import LoopbackJudge, says
from short_run import results

from art_cli.runs.directory import RunDir
from art_cli.runs.trajectories import grouped

CONFIG = f"""
project: test
name: game
env: {{use: "{counting.__file__}:Hidden", opponents: {{train: policy, eval: start}}}}
model:
  base: tiny
  adapter: null
  tiny: {{hidden_size: 32, num_layers: 1, vocab_size: 400}}
sft: {{num_demonstrations: 250, epochs: 6, learning_rate: 1.0e-2, optimizer: muon}}
sampling: {{max_tokens: 40}}
train: {{steps: 2, scenarios_per_step: 2, group_size: 4, learning_rate: 4.0e-3}}
eval: {{every: 2, episodes: 8}}
checkpoint: {{every: 1, keep: 9}}
"""
OWN = "agent.use=function", f"agent.function={counting.__file__}:plays"


def trained(folder: Path, *overrides: str, base: Path | None = None) -> RunDir:
    """Train; where there is a `base`, that is a policy which has been warmed up."""
    kept = [x for x in CONFIG.splitlines() if not base or not x.startswith(("  tiny", "sft"))]
    (folder / "config.yaml").write_text("\n".join(kept))
    art(folder, "run", "config.yaml", *overrides, *([f"model.base={base}"] if base else []))
    return RunDir(folder / "runs/test/game")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return trained(tmp_path_factory.mktemp("whole"))


def check(groups: list[list[dict[str, Any]]]) -> None:
    """Each seat's groups stand beside each other; the results are each seat's own."""
    for mine, theirs in zip(groups[::2], groups[1::2], strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one["error"] is None and one["reward"] + other["reward"] == 1
            for row in (one, other):
                seat = row["scenario"]["seat"]
                looks = [s for s in row["steps"] if s["tool"] == "look" and not s["is_error"]]
                assert all(f"{seat} sees" in s["result"] for s in looks if s["result"])
                assert sum(sum(s["mask"]) for s in row["sequences"]) == row["num_sampled"]


def test_seats_look_and_move_by_tools(whole: RunDir) -> None:
    rows = whole.read_trajectories(1, "train")
    assert len(rows) == 16
    check(grouped(rows))
    tools = {s["tool"] for r in rows for s in r["steps"]}
    assert {"look", "say", None} <= tools


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_with_the_same_bits(whole: RunDir, tmp_path: Path) -> None:
    run = trained(tmp_path, "train.steps=1")
    art(tmp_path, "run", "config.yaml", "--resume")
    expected, found = results(whole), results(run)
    steps = [n for n in expected if n.startswith(("checkpoints/2", "base", "trajectories/train"))]
    assert len(steps) > 8 and [n for n in steps if found[n] != expected[n]] == []


@pytest.mark.slow
def test_an_agent_of_ones_own_plays_itself_and_the_start(whole: RunDir, tmp_path: Path) -> None:
    run = trained(tmp_path, *OWN, "agent.concurrency=2", base=whole.checkpoint(2))
    rows = run.read_trajectories(1, "train")
    assert len(rows) == 16 and {r["metrics"]["crashed"] for r in rows} == {0}
    check(grouped(rows))
    for row in rows:
        assert row["metrics"]["policy_calls"] == row["num_turns"]
    held_out = run.read_trajectories(2, "val")
    assert [r["scenario"]["seat"] for r in held_out] == ["left", "right"] * 4
    assert all(r["reward"] in (0, 1) for r in held_out)
    with LoopbackJudge(then=says("two")) as server:
        rival = f"{server.model},api_base={server.api_base}"
        ask = ("eval", "runs/test/game", "--candidate", rival, "--episodes", "4", "--json")
        row = json.loads(art(tmp_path, *ask))[server.model]
    assert row["episodes"] == 4 and row["metrics"]["turns"]["value"] > 0


def test_an_agent_of_ones_own_meets_a_model_that_is_asked(whole: RunDir, tmp_path: Path) -> None:
    with LoopbackJudge(then=says("two")) as server:
        who = {"model": server.model, "api_base": server.api_base}
        run = trained(
            tmp_path,
            f"env.opponents={json.dumps({'train': who})}",
            *OWN,
            "train.steps=1",
            "eval=null",
            base=whole.checkpoint(2),
        )
        tools = [a.body.get("tools") for a in server.asked[1:]]
    assert len(run.read_trajectories(1, "train")) == 8
    assert tools and all(len(each or []) == 2 for each in tools)


def test_a_game_with_tools_is_the_same_in_an_interpreter_of_its_own(
    whole: RunDir, tmp_path: Path
) -> None:
    """Against its script, which moves behind a call, too."""
    change = "env.opponents=null", "train.steps=1", "eval=null"
    found = []
    for name, python in (("here", "null"), ("there", sys.executable)):
        (tmp_path / name).mkdir()
        asked = *change, f"env.python={python}"
        run = trained(tmp_path / name, *asked, base=whole.checkpoint(2))
        found.append(run.read_trajectories(1, "train"))
    assert found[0] == found[1]
    moves = [s["result"] for r in found[0] for s in r["steps"] if s["tool"] == "say"]
    assert any("your turn" in (m or "") for m in moves)
