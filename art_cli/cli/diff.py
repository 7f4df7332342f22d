"""`art diff`: the differences between two runs, and which run is better."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli.inputs import AsJson
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.evaluation.statistics import Estimate
    from art_cli.inspection.difference import HeldOutMetric, RunDifference, Setting
    from art_cli.terminal.screen import Screen


def diff(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    second: Annotated[Path, typer.Argument(metavar="OTHER", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Say in what a second run differs from a first: settings, code and versions, held-out metrics
    scenario by scenario with 95% intervals, behaviour; and in a sentence which is better.

    Example:  art diff runs/default/quickstart runs/default/lower-rate
    """
    from art_cli.inspection.difference import compare_runs, verdict
    from art_cli.runs.directory import RunDir
    from art_cli.terminal.screen import Screen

    runs = [RunDir.open(first), RunDir.open(second)]
    found = compare_runs(*runs)
    if as_json:
        both = [{"run": str(run.root), "told": run.told()} for run in runs]
        return say(json.dumps({"first": both[0], "second": both[1], **found.as_json()}))
    for line in found.unread:
        say(f"warning: {line}", file=sys.stderr)
    screen = Screen()
    for label, run in zip(("first", "second"), runs, strict=True):
        screen.print(f"{label:<7} {run.root}: {run.told()}")
    _settings(screen, "Settings", found.config, "They have the same settings.")
    if found.silent:
        screen.print("\nCode and versions", style="bold")
        screen.print(f"Not stored by {' and '.join(found.silent)}.")
    else:
        _settings(screen, "Code and versions", found.made_with, "Nothing differs.")
    if found.training:
        _settings(screen, "Training, the last third of the steps", found.training, "")
    _held_out(screen, found)
    screen.print()
    screen.print(verdict(found), style="bold")
    return None


def _settings(screen: Screen, title: str, rows: list[Setting], otherwise: str) -> None:
    from rich.table import Table

    screen.print()
    screen.print(title, style="bold")
    if not rows:
        return screen.print(otherwise)
    table = Table(box=None, pad_edge=False)
    for name in ("", "first", "second"):
        table.add_column(name)
    for row in rows:
        table.add_row(row.key, row.first, row.second)
    return screen.show(table)


def _held_out(screen: Screen, d: RunDifference) -> None:
    from rich.table import Table

    screen.print()
    screen.print("Held-out episodes", style="bold")
    if d.steps is None:
        return screen.print("There is no evaluation of the same split in both.")
    screen.print(
        f"{d.split} at step {d.steps[0]} and step {d.steps[1]}; "
        f"{d.num_common} scenarios in common, of {d.num_scenarios[0]} and {d.num_scenarios[1]}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in ("first", "second", "change [95%]"):
        table.add_column(name, justify="right")
    for metric in d.metrics:
        if not _is_idle(metric):
            table.add_row(_label(metric.name), *_cells(metric))
    screen.show(table)
    screen.print("*: the interval, scenario by scenario, excludes 0. name(): calls an episode.")
    if d.untrained and d.untrained.is_bounded:
        screen.print(f"Before the first update, the reward: {_change(d.untrained)}")
    if d.same_play is not None:
        screen.print(f"Played word for word alike: {d.same_play:.0%} of the common scenarios.")
    return None


def _label(name: str) -> str:
    from art_cli.inspection.difference import CALLS

    return f"{name.removeprefix(CALLS)}()" if name.startswith(CALLS) else name


def _is_idle(metric: HeldOutMetric) -> bool:
    """Return whether a metric carries no information: always zero, or an ending of all episodes."""
    from art_cli.inspection.difference import ENDED

    ends = {e.value for e in (metric.first, metric.second) if e}
    return ends == {0.0} or (ends == {1.0} and metric.name.startswith(ENDED))


def _cells(metric: HeldOutMetric) -> list[str]:
    ends = ["-" if e is None else _number(e.value) for e in (metric.first, metric.second)]
    return [*ends, "-" if metric.change is None else _change(metric.change)]


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _change(e: Estimate) -> str:
    if not e.is_bounded:
        return f"{e.value:+.2f}"
    return f"{e.value:+.2f} [{e.low:+.2f}, {e.high:+.2f}]{'*' if e.excludes_zero else ' '}"
