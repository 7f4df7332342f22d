"""A run in one line: how far it is, and how good. `art runs` lists them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from art_cli.runs.directory import RunDir, State, step_of
from art_cli.runs.stored_fields import check_metrics
from art_cli.system import files
from art_cli.system.untrusted import is_number


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One line of `art runs`."""

    project: str
    name: str
    path: Path
    state: State
    step: int
    steps: int
    train_reward: float | None  # of the last step
    val_reward: float | None  # the last one
    best_val_reward: float | None
    updated: datetime
    damaged: list[str]  # what could not be read, with its place


def summary_of(run: RunDir) -> RunSummary:
    """Return how far the run is and how good, from status.json and metrics.jsonl."""
    status = run.read_status()
    rows, damaged = files.read_lines(run.metrics, check_metrics)
    vals, trains = _numbers(rows, "val/reward"), _numbers(rows, "train/reward")
    there = [p for p in (run.metrics, run.status, run.config) if p.exists()]
    updated = max((p.stat().st_mtime for p in there), default=0.0)
    return RunSummary(
        project=run.root.parent.name,
        name=run.root.name,
        path=run.root,
        state=run.state(),
        step=max([status.step if status else 0, *map(step_of, rows)]),
        steps=status.steps if status else 0,
        train_reward=trains[-1] if trains else None,
        val_reward=vals[-1] if vals else None,
        best_val_reward=max(vals, default=None),
        updated=datetime.fromtimestamp(updated, UTC),
        damaged=damaged + run.damaged_beside(),
    )


def list_runs(root: Path) -> list[RunSummary]:
    """Return all runs under `root` (the folder `runs/`), the one that moved last first."""
    found = {p.parent for name in ("config.yaml", "status.json") for p in root.glob(f"*/*/{name}")}
    return sorted((summary_of(RunDir(p)) for p in found), key=lambda run: run.updated, reverse=True)


def _numbers(rows: list[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows if is_number(row.get(name))]
