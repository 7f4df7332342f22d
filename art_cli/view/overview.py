"""A run in numbers: its verdict, its curves over steps, what of it cannot be read."""

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
    curves = _curves(rows)
    return {
        "name": f"{run.root.parent.name}/{run.root.name}",
        "path": str(run.root),
        "state": state,
        "step": step,
        "steps": status.steps if status else 0,
        "message": status.message if status else "",
        "verdict": verdict(curves.get("val/reward"), state, step, len(rows)),
        "x": _axes(rows),
        "curves": curves,
        "damaged": [*run.damaged(), *_lacking(run)],
    }


def stamp(run: RunDir) -> tuple[Any, ...]:
    """Return what changes whenever `overview` may: cheap enough to be asked every second."""
    files = (run.metrics, run.status, run.costs, run.llm_costs, run.agent_costs, run.trajectories)
    return (*map(_moved, files), run.state())


def verdict(val: dict[str, list[Any]] | None, state: str, step: int, num_rows: int) -> str:
    """Return in a sentence what the run came to, or how far it is.

    `val` is the curve of the held-out reward, with half the width of its interval as `ci`.
    """
    points = list(zip(val["step"], val["y"], val["ci"], strict=True)) if val else []
    where = _state_words(state, step)
    if not num_rows:
        return f"{where}. No number has been written yet."
    if not points:
        return (
            f"{where}. Nothing was evaluated on held-out scenarios, so whether it has learned "
            "cannot be said from the training reward alone."
        )
    if len(points) == 1:
        (s0, first, _), so_far = points[0], "there is nothing to compare it with yet"
        return f"{where}. Held-out reward was {first:.2f} at step {s0}; {so_far}."
    best_step, best, _ = max(points, key=lambda p: p[1])
    more = f" Its best was {best:.2f} at step {best_step}." if best > points[-1][1] else ""
    return f"{where}. {_change(points[0], points[-1])}.{more}"


def _change(first: tuple[int, float, float | None], last: tuple[int, float, float | None]) -> str:
    (s0, y0, ci0), (s1, y1, ci1) = first, last
    gap, ends = y1 - y0, f"from {y0:.2f} (step {s0}) to {y1:.2f} (step {s1})"
    moved = "rose" if gap > 0 else "fell"
    if ci0 is None or ci1 is None:
        return f"Held-out reward {moved} {ends}; how sure that is was not recorded"
    noise = math.hypot(ci0, ci1)
    if abs(gap) > noise:
        so = f"by {abs(gap):.2f}, more than the {noise:.2f} that could be chance"
        return f"Held-out reward {moved} {ends}, {so}"
    return (
        f"Held-out reward went {ends}: {gap:+.2f} may be chance, since it is within "
        f"+/-{noise:.2f}; evaluate more scenarios to know"
    )


def _state_words(state: str, step: int) -> str:
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
        lacks.append("It has no config.yaml, so advantages are computed as train.advantage=mean.")
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
