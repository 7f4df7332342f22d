"""A run in numbers: its curves over steps, and its unreadable lines."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

from art_cli.runs.directory import MOST_CALLS, RunDir, step_of
from art_cli.runs.status import damaged_status
from art_cli.runs.stored_fields import check_metrics
from art_cli.system.files import GrowingLines
from art_cli.system.untrusted import is_number

X_AXES = ("step", "seconds", "tokens", "dollars")


Mark = tuple[int, int]  # which metrics.jsonl it was (a resume makes another), and lines of it


class RunCurves:
    """A run in numbers. Each line is read once and sent once."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        metrics, *costs = run.growing
        self._files = [GrowingLines(metrics, check_metrics)]
        self._files += [GrowingLines(path, most=MOST_CALLS) for path in costs]
        self._begin(1)

    def _begin(self, generation: int) -> None:
        self._generation, self._lines, self._last = generation, 0, 0
        self._curves: dict[str, dict[str, list[Any]]] = {}
        self._axes: dict[str, list[float]] = {name: [] for name in X_AXES}

    def read(self, since: Mark = (0, 0)) -> tuple[Mark, dict[str, Any]]:
        """Return a new mark, and the page's data without episodes: its curves after the mark
        `since`.

        Never raises.
        """
        (rows, begins_anew), *_ = [file.read() for file in self._files]
        if begins_anew and self._lines:
            self._begin(self._generation + 1)
        for row in rows:
            self._add(row)
        run, status = self._run, self._run.read_status()
        begin = since[1] if since[0] == self._generation else 0
        damaged = [line for file in self._files for line in file.damaged]
        damaged += damaged_status(run.status)
        return (
            (self._generation, self._lines),
            {
                "name": f"{run.root.parent.name}/{run.root.name}",
                "path": str(run.root),
                "state": run.state(),
                "step": max(status.step if status else 0, self._last),
                "steps": status.steps if status else 0,
                "message": status.message if status else "",
                "begin": begin,  # the first line of metrics.jsonl in x and curves
                "x": {name: values[begin:] for name, values in self._axes.items()},
                "curves": self._curves_from(begin),
                "damaged": [*damaged, *_lacking(run)],
            },
        )

    def _add(self, row: dict[str, Any]) -> None:
        self._last = max(self._last, step_of(row))
        for name, value in row.items():
            if is_number(value) and name not in ("training_step", "val/reward", "val/reward_ci"):
                self._add_point(name, row, value)
        if is_number(row.get("val/reward")):
            ci = row.get("val/reward_ci")
            self._add_point("val/reward", row, row["val/reward"], ci=ci if is_number(ci) else None)
        groups, flat = row.get("data/groups"), row.get("data/groups_zero_variance")
        if is_number(groups) and is_number(flat) and groups > 0:
            self._add_point("signal", row, 1 - flat / groups)
        usd = _dollars(row)
        if usd is not None:
            self._add_point("dollars", row, usd)
        last = {name: values[-1] if values else 0.0 for name, values in self._axes.items()}
        self._axes["step"].append(step_of(row))
        seconds = sum(_number(row, k) for k in ("time/step_s", "time/eval_s"))
        self._axes["seconds"].append(last["seconds"] + seconds)
        self._axes["tokens"].append(last["tokens"] + _number(row, "data/tokens_sampled"))
        self._axes["dollars"].append(max(last["dollars"], usd or 0.0))
        self._lines += 1

    def _add_point(self, name: str, row: dict[str, Any], value: float, **more: Any) -> None:
        curve = self._curves.setdefault(name, {"step": [], "row": [], "y": []})
        for key, v in {"step": step_of(row), "row": self._lines, "y": value, **more}.items():
            curve.setdefault(key, []).append(v)

    def _curves_from(self, begin: int) -> dict[str, dict[str, list[Any]]]:
        """Return each metric as {step, row, y}: `row` is the line of metrics.jsonl, for x."""
        found = {}
        for name, curve in self._curves.items():
            n = bisect_left(curve["row"], begin)
            if n < len(curve["row"]):
                found[name] = {key: values[n:] for key, values in curve.items()}
        return found


def stamp(run: RunDir) -> tuple[Any, ...]:
    """Return a value that changes with the run's files; cheap enough for every second."""
    files = (*run.growing, run.status, run.trajectories)
    return (*map(_moved, files), run.state())


def state_words(state: str, step: int) -> str:
    """Return the state of a run in words."""
    words = {
        "running": f"It goes on, at step {step}",
        "done": f"Finished at step {step}",
        "failed": f"It failed after step {step}",
        "interrupted": f"Stopped after step {step}",
        "killed": f"Its process is gone, after step {step}",
    }
    return words.get(state, f"At step {step}")


def _dollars(row: dict[str, Any]) -> float | None:
    spent = [v for k, v in row.items() if k.startswith("costs/") and is_number(v)]
    return sum(spent) if spent else None


def _lacking(run: RunDir) -> list[str]:
    """Return messages about files that a run directory usually has and this one lacks."""
    lacks = []
    if not run.metrics.exists():
        lacks.append("It has no metrics.jsonl yet, so there are no curves.")
    if not run.config.exists():
        lacks.append("It has no config.yaml, so its settings are taken for the defaults.")
    if not any(run.trajectories.glob("*.jsonl.gz")):
        lacks.append("It has no trajectories, so there are no groups, episodes or tokens to show.")
    return lacks


def _moved(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _number(row: dict[str, Any], name: str) -> float:
    value = row.get(name)
    return value if is_number(value) else 0.0
