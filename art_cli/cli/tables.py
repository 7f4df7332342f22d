"""Evaluations as a table and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from art_cli.evaluation.progress import Evaluation


def evaluation_row(e: Evaluation | None) -> dict[str, Any] | None:
    """An evaluation without its trajectories."""
    if e is None:
        return None
    return {
        "split": e.split,
        "step": e.step,
        "episodes": e.episodes,
        "failed": e.failed,
        "reward": e.reward,
        "reward_ci95": e.ci,
        "metrics": e.metrics,
    }


def comparison(*columns: tuple[str, Evaluation]) -> None:
    """Print evaluations side by side; the first is what the last is compared with."""
    first, last = columns[0][1], columns[-1][1]
    table = Table(title=f"{last.split}: {last.episodes} held-out episodes", title_justify="left")
    table.add_column("")
    for name, e in columns:
        table.add_column(f"{name} (step {e.step})", justify="right")
    if len(columns) > 1:
        table.add_column("change", justify="right")
    _row(
        table,
        "reward",
        [f"{e.reward:.3f} ± {e.ci:.3f}" for _, e in columns],
        last.reward - first.reward if len(columns) > 1 else None,
    )
    names = sorted({n for _, e in columns for n in e.metrics}, key=lambda n: (n != "success", n))
    for name in names:
        values = [e.metrics.get(name) for _, e in columns]
        known = values[0] is not None and values[-1] is not None and len(columns) > 1
        change = (values[-1] or 0) - (values[0] or 0) if known else None
        _row(table, name, ["-" if v is None else f"{v:.3f}" for v in values], change)
    if any(e.failed for _, e in columns):
        _row(table, "failed episodes", [str(e.failed) for _, e in columns], None)
    Console(highlight=False).print(table)


def _row(table: Table, name: str, cells: list[str], change: float | None) -> None:
    more = [] if len(table.columns) == len(cells) + 1 else [""]
    if change is not None:
        more = [f"{change:+.3f}"]
    table.add_row(name, *cells, *more)
