"""Evaluations as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from art_cli.evaluation.comparison import PASS, Column, Comparison
from art_cli.evaluation.statistics import Estimate
from art_cli.screen import Screen

if TYPE_CHECKING:  # it needs torch; a comparison does not
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
    Screen().print(table)


def _row(table: Table, name: str, cells: list[str], change: float | None) -> None:
    more = [] if len(table.columns) == len(cells) + 1 else [""]
    if change is not None:
        more = [f"{change:+.3f}"]
    table.add_row(name, *cells, *more)


def print_comparison(c: Comparison) -> None:
    """Print candidates side by side: means, differences to the baseline, kinds of tasks."""
    console = Screen()
    others = [column for column in c.columns if column.candidate.name != c.baseline]
    num = max(column.num_scenarios for column in c.columns)
    trials = f", {c.trials} trials each" if c.trials > 1 else ""
    console.print(f"{c.split}: {num} held-out scenarios{trials}")
    console.print(_means(c))
    if others:
        console.print(f"difference to {c.baseline}, on the same scenarios")
        console.print(_differences(c, others))
    for tag in c.tags:
        console.print(f"{PASS}1 by {tag}")
        console.print(_by_tag(c, tag))
    passing = f"pass^k: all of k trials passed ({c.success}); " if c.trials > 1 else ""
    console.print(
        f"{passing or f'passed: {c.success}; '}[ ]: 95% intervals, by scenario"
        f"{'; *: the interval excludes 0' if others else ''}.",
        markup=False,
    )
    for column in c.columns:
        for line in column.errors[:3]:
            console.print(f"{column.candidate.name}, failed: {line}")


def _means(c: Comparison) -> Table:
    table = _table(c.columns)
    for name in c.metrics:
        table.add_row(_label(name), *(_cell(x.metrics.get(name), name) for x in c.columns))
    if any(column.usd for column in c.columns):
        table.add_row("dollars in all", *(f"{column.usd:.4f}" for column in c.columns))
    table.add_row("episodes", *(_episodes(column) for column in c.columns))
    return table


def _differences(c: Comparison, others: list[Column]) -> Table:
    table = _table(others)
    for name in c.metrics:
        gaps = [column.gaps.get(name) for column in others]
        if any(gaps):
            table.add_row(_label(name), *(_cell(gap, name, "+") for gap in gaps))
    return table


def _by_tag(c: Comparison, tag: str) -> Table:
    table = _table(c.columns)
    values = sorted({v for column in c.columns for v in column.by.get(tag, {})})
    for value in values:
        found = [column.by.get(tag, {}).get(value, {}) for column in c.columns]
        table.add_row(value, *(_cell(f.get(f"{PASS}1"), PASS) for f in found))
    return table


def _table(columns: list[Column]) -> Table:
    table = Table()
    table.add_column("")
    for column in columns:
        step = "" if column.candidate.step is None else f" (step {column.candidate.step})"
        table.add_column(f"{column.candidate.name}{step}", justify="right", overflow="fold")
    return table


def _label(name: str) -> str:
    known = {"usd": "dollars", "tool_errors": "tool errors", "tool_calls": "tool calls"}
    return known.get(name, name)


def _cell(e: Estimate | None, name: str, sign: str = "") -> str:
    """A mean and its interval; with a `sign` it is a difference, and a star says it is sure."""
    if e is None:
        return "-"
    places = 4 if name == "usd" else 3 if abs(e.value) < 10 else 1
    value = f"{e.value:{sign}.{places}f}"
    if e.is_bounded:
        value += f" [{e.low:{sign}.{places - 1}f}, {e.high:{sign}.{places - 1}f}]"
    return f"{value} {'*' if e.excludes_zero else ' '}" if sign else value


def _episodes(column: Column) -> str:
    failed = f", {len(column.failed)} failed" if column.failed else ""
    known = f", {column.num_known} from before" if column.num_known else ""
    return f"{len(column.attempts)}{failed}{known}"
