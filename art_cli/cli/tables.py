"""Evaluations as a table and as JSON."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from art_cli.evaluation.comparison import PASS, WAITED, Column, Comparison, is_sure
from art_cli.evaluation.statistics import Estimate
from art_cli.terminal.screen import Screen

STARRED = f"; *: the interval excludes 0 ({WAITED} have none: they depend on what else went on)"


def comparison(*columns: tuple[str, dict[str, Any]]) -> None:
    """Print evaluations side by side, and the change from the first to the last."""
    rows = [row for _, row in columns]
    first, last = rows[0], rows[-1]
    num = "" if last["episodes"] is None else f"{last['episodes']} "
    table = Table(title=f"{last['split']}: {num}held-out episodes", title_justify="left")
    table.add_column("")
    for name, row in columns:
        table.add_column(f"{name}\n(step {row['step']})", justify="right")
    table.add_column("change", justify="right")
    cells = [_with_interval(row["reward"], row["reward_ci95"]) for row in rows]
    table.add_row("reward", *cells, f"{last['reward'] - first['reward']:+.3f}")
    names = {name for row in rows for name in row["metrics"]}
    for name in sorted(names, key=lambda n: (n != "success", n)):
        values = [row["metrics"].get(name) for row in rows]
        is_known = None not in (values[0], values[-1])
        change = f"{values[-1] - values[0]:+.3f}" if is_known else ""
        table.add_row(_label(name), *("-" if v is None else f"{v:.3f}" for v in values), change)
    if any(row["failed"] for row in rows):
        table.add_row("failed episodes", *(str(row["failed"] or 0) for row in rows), "")
    Screen().show(table)


def _with_interval(value: float, half_width: float | None) -> str:
    return f"{value:.3f}" if half_width is None else f"{value:.3f} ± {half_width:.3f}"


def print_comparison(c: Comparison) -> None:
    """Print candidates side by side: means, differences to the baseline, kinds of tasks."""
    console = Screen()
    others = [column for column in c.columns if column.candidate.name != c.baseline]
    num = max(column.num_scenarios for column in c.columns)
    trials = f", {c.trials} trials each" if c.trials > 1 else ""
    console.print(f"{c.split}: {num} held-out scenarios{trials}")
    console.show(_means(c))
    if others:
        console.print(f"difference to {c.baseline}, on the same scenarios")
        console.show(_differences(c, others))
    for tag in c.tags:
        console.print(f"{PASS}1 by {tag}")
        console.show(_by_tag(c, tag))
    passing = f"pass^k: all of k trials passed ({c.success}); " if c.trials > 1 else ""
    console.print(
        f"{passing or f'passed: {c.success}; '}[ ]: 95% intervals, by scenario"
        f"{STARRED if others else ''}.",
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
    table.add_row("episodes", *(str(len(column.attempts)) for column in c.columns))
    for label, counts in (
        ("failed", [len(column.failed) for column in c.columns]),
        ("from before", [column.num_known for column in c.columns]),
    ):
        if any(counts):
            table.add_row(label, *map(str, counts))
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
        step = "" if column.candidate.step is None else f"\n(step {column.candidate.step})"
        table.add_column(f"{column.candidate.name}{step}", justify="right", overflow="fold")
    return table


def _label(name: str) -> str:
    known = {"usd": "dollars", "tool_errors": "tool errors", "tool_calls": "tool calls"}
    return known.get(name, name)


def _cell(e: Estimate | None, name: str, sign: str = "") -> str:
    """Return a mean and its interval. With `sign` it is a difference, starred if significant."""
    if e is None:
        return "-"
    places = 4 if name == "usd" else 3 if abs(e.value) < 10 else 1
    value = f"{e.value:{sign}.{places}f}"
    if e.is_bounded:
        value += f" [{e.low:{sign}.{places - 1}f}, {e.high:{sign}.{places - 1}f}]"
    return f"{value} {'*' if is_sure(name, e) else ' '}" if sign else value
