"""Run directories to be looked at: small, large, hostile, and damaged ones."""

from __future__ import annotations

import gzip
import json
import random
import statistics
from pathlib import Path
from typing import Any

PAYLOAD = (
    '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>]]>\'"</script><b>bold</b>'
)
LINK = '<a href="javascript:window.hurt=1">x</a>'


def metrics_row(step: int) -> dict[str, Any]:
    rng = random.Random(step)
    return {
        "training_step": step,
        "train/reward": 0.3 + step / 200 + rng.random() / 10,
        "train/tokens": 50 + rng.random(),
        "data/groups": 10,
        "data/groups_zero_variance": rng.randrange(4),
        "data/tokens_sampled": 4000,
        "loss/entropy": 0.5,
        "loss/ratio_max": 1.1,
        "time/step_s": 2.0,
        "costs/judge_usd": step * 0.01,
    }


def trajectory(step: int, split: str, group: int, index: int, **changes: Any) -> dict[str, Any]:
    """Return a row of a trajectory file."""
    rng = random.Random(f"{step} {split} {group} {index}")
    good = rng.random() < 0.3 + step / 200
    tool = rng.choice(["look_up", "cancel", "refund"])
    call = {"name": tool, "arguments": {"order": f"W{group}"}}
    turns = [
        {"role": "system", "content": "You are a shop assistant."},
        {"role": "user", "content": f"Please cancel order W{group}."},
        {"role": "assistant", "content": "<think>hm</think>calls", "tool_calls": [call]},
        {"role": "tool", "name": tool, "content": '{"ok": true}' * 20, "is_error": not good},
        {"role": "assistant", "content": "done" if good else f"sorry, never {index}"},
    ]
    reward = 1.0 if good else rng.choice([0.0, 0.5])
    ids = list(range(60))
    mask = [0] * 20 + [1] * 15 + [0] * 10 + [1] * 15
    return {
        "step": step,
        "split": split,
        "group": group,
        "index": index,
        "scenario_id": f"{split}-{group}",
        "seed": 2**62 + group,
        "scenario": {"order": group},
        "reward": reward,
        "reward_parts": {"env": reward},
        "advantage": reward - 0.5 if split == "train" else None,
        "metrics": {"success": float(good)},
        "stop_reason": "env",
        "truncated": False,
        "error": None,
        "judge_context": "",
        "logs": [],
        "num_turns": 2,
        "num_calls": 2,
        "num_sampled": 30,
        "policy_versions": [step, step],
        "steps": [
            {"turn": 0, "tool": tool, "arguments": {}, "result": "ok", "is_error": not good},
            {
                **{"turn": 1, "tool": None, "said": "done" if good else "sorry"},
                **{"result": None, "is_error": False},
            },
        ],
        "messages": turns,
        "side_conversations": [],
        "sequences": [{"ids": ids, "mask": mask, "engine_logprobs": [-0.1 * m for m in mask]}],
    } | changes


def write_step(run: Path, step: int, split: str, rows: list[dict[str, Any]]) -> Path:
    path = run / "trajectories" / f"{split}-{step:06d}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(r) + "\n" for r in rows).encode(), 1))
    return path


def add_step(run: Path, step: int, groups: int = 10, size: int = 10) -> None:
    """Write what a step of a run writes: trajectories, then its line of metrics."""
    rows: list[dict[str, Any]] = []
    for group in range(groups):
        siblings = [trajectory(step, "train", group, i) for i in range(size)]
        mean = statistics.fmean(row["reward"] for row in siblings)
        rows += [row | {"advantage": row["reward"] - mean} for row in siblings]
    write_step(run, step, "train", rows)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(metrics_row(step)) + "\n")


def add_evaluation(run: Path, step: int, scenarios: int = 20) -> None:
    write_step(run, step, "val", [trajectory(step, "val", g, 0) for g in range(scenarios)])
    row = {"training_step": step, "val/reward": 0.4 + step / 100, "val/reward_ci": 0.05}
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def make_run(
    run: Path, steps: int = 4, groups: int = 4, size: int = 4, scenarios: int = 20
) -> Path:
    """Make a run with an evaluation before the first step and after the last."""
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("train: {advantage: mean}\nmodel: {base: nowhere}\n")
    add_evaluation(run, 0, scenarios)
    for step in range(1, steps + 1):
        add_step(run, step, groups, size)
    add_evaluation(run, steps, scenarios)
    status = {"state": "done", "step": steps, "steps": steps, "pid": 1, "updated": ""}
    (run / "status.json").write_text(json.dumps(status | {"message": ""}))
    return run


def make_hostile(run: Path) -> Path:
    """Make a run in which everybody who can say something says markup."""
    make_run(run, steps=2)
    hurt = [
        trajectory(
            *(3, "train", 0, i),
            scenario_id=PAYLOAD,
            logs=[PAYLOAD],
            stop_reason=PAYLOAD,
            judge_context=PAYLOAD,
            error=PAYLOAD,
            metrics={PAYLOAD: 1.0},
            scenario={PAYLOAD: LINK},
            steps=[{"turn": 0, "tool": PAYLOAD, "arguments": {}, "said": LINK, "result": PAYLOAD}],
            messages=[
                {"role": PAYLOAD, "content": LINK},
                {"role": "user", "content": f"{PAYLOAD}{i}"},
                {
                    "role": "assistant",
                    "content": f"<think>{PAYLOAD}</think>{PAYLOAD}",
                    "tool_calls": [{"name": PAYLOAD, "arguments": {PAYLOAD: LINK}}],
                },
                {"role": "tool", "name": LINK, "content": PAYLOAD},
            ],
            reward=float(i),
        )
        for i in range(3)
    ]
    write_step(run, 3, "train", hurt)
    write_step(run, 3, "val", [row | {"split": "val", "group": 9} for row in hurt[:1]])
    with open(run / "metrics.jsonl", "a") as file:
        file.write(
            json.dumps({"training_step": 3, "train/reward": 1.0, f"x/{PAYLOAD}": 1.0}) + "\n"
        )
    scores = {"step": 3, "scenario_id": PAYLOAD, "scores": [0, 1, 2], "explanations": [PAYLOAD] * 3}
    (run / "judgements").mkdir()
    (run / "judgements" / "judge.jsonl").write_text(json.dumps(scores) + "\n")
    return run
