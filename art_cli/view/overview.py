"""A run in numbers: its curves over steps, what of it cannot be read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeGuard

from art_cli.runs.directory import RunDir
from art_cli.view.meanings import CURVES

X_AXES = ("step", "seconds", "tokens", "dollars")


def overview(run: RunDir) -> dict[str, Any]:
    """Return what the page shows of a run before its episodes are read. Never raises."""
    rows = run.read_metrics()
    status = run.read_status()
    state, step = run.state(), max([status.step if status else 0, *map(_step, rows)])
    return {
        "name": f"{run.root.parent.name}/{run.root.name}",
        "path": str(run.root),
        "state": state,
        "step": step,
        "steps": status.steps if status else 0,
        "message": status.message if status else "",
        "x": _axes(rows),
        "curves": _curves(rows),
        "damaged": [*run.damaged(), *_lacking(run)],
    }


def stamp(run: RunDir) -> tuple[Any, ...]:
    """Return what changes whenever `overview` may: cheap enough to be asked every second."""
    files = (run.metrics, run.status, run.costs, run.llm_costs, run.agent_costs, run.trajectories)
    return (*map(_moved, files), run.state())


def state_words(state: str, step: int) -> str:
    """Return how far a run is, in words."""
    words = {
        "running": f"It goes on, at step {step}",
        "done": f"Finished at step {step}",
        "failed": f"It failed after step {step}",
        "interrupted": f"Stopped after step {step}",
        "killed": f"Its process is gone, after step {step}",
    }
    return words.get(state, f"At step {step}")


def _curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """Return every metric as {step, row, y}: `row` is the line of metrics.jsonl, for the x axis."""
    curves: dict[str, dict[str, list[Any]]] = {}

    def add(name: str, n: int, value: float, **more: Any) -> None:
        curve = curves.setdefault(name, {"step": [], "row": [], "y": []})
        for key, v in {"step": _step(rows[n]), "row": n, "y": value, **more}.items():
            curve.setdefault(key, []).append(v)

    for n, row in enumerate(rows):
        for name, value in row.items():
            if is_number(value) and name not in ("training_step", "val/reward", "val/reward_ci"):
                add(name, n, value)
        if is_number(row.get("val/reward")):
            ci = row.get("val/reward_ci")
            add("val/reward", n, row["val/reward"], ci=ci if is_number(ci) else None)
        groups, flat = row.get("data/groups"), row.get("data/groups_zero_variance")
        if is_number(groups) and is_number(flat) and groups > 0:
            add("signal", n, 1 - flat / groups)
        if (usd := _dollars(row)) is not None:
            add("dollars", n, usd)
    first = [name for name in CURVES if name in curves]
    return {name: curves[name] for name in (*first, *sorted(curves.keys() - set(first)))}


def _axes(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return what each line of metrics.jsonl has as its place on each x axis."""
    axes: dict[str, list[float]] = {name: [] for name in X_AXES}
    seconds = tokens = dollars = 0.0
    for row in rows:
        seconds += sum(_number(row, k) for k in ("time/step_s", "time/eval_s"))
        tokens += _number(row, "data/tokens_sampled")
        dollars = max(dollars, _dollars(row) or 0.0)
        for name, value in zip(X_AXES, (_step(row), seconds, tokens, dollars), strict=True):
            axes[name].append(value)
    return axes


def _dollars(row: dict[str, Any]) -> float | None:
    spent = [v for k, v in row.items() if k.startswith("costs/") and is_number(v)]
    return sum(spent) if spent else None


def _lacking(run: RunDir) -> list[str]:
    """Say what a run directory usually has and this one has not."""
    lacks = []
    if not run.metrics.exists():
        lacks.append("It has no metrics.jsonl yet, so there are no curves.")
    if not run.config.exists():
        lacks.append("It has no config.yaml, so its settings are taken for the defaults.")
    if not run.trajectory_steps("train") and not run.trajectory_steps("val"):
        lacks.append("It has no trajectories, so there are no groups, episodes or tokens to show.")
    return lacks


def _moved(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _step(row: dict[str, Any]) -> int:
    step = row.get("training_step", 0)
    return step if isinstance(step, int) else 0


def _number(row: dict[str, Any], name: str) -> float:
    value = row.get(name)
    return value if is_number(value) else 0.0


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether it is a finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
