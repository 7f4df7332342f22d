"""`art runs`: the runs here, their progress, and their metrics over steps."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli.inputs import RunsDir
from art_cli.errors import UsageError
from art_cli.terminal.text import masked, say, visible

if TYPE_CHECKING:
    from art_cli.runs.summary import RunSummary
    from art_cli.why.evidence import Point

PLOT_IN_A_PIPE = 80  # columns of a plot that is not printed to a terminal


def runs(
    run: Annotated[
        Path | None, typer.Argument(help="A run directory; default: a list of all.")
    ] = None,
    plot: Annotated[
        list[str] | None,
        typer.Option(metavar="METRIC", help="Draw this metric of RUN over steps; repeatable."),
    ] = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="List the runs of `art run --smoke`, too.")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the runs here: state, step, last and best reward. With a run, its line and the names of
    its metrics; with --plot, these as curves.

    Example:  art runs runs/default/quickstart --plot val/reward --plot loss/entropy
    """
    if plot and run is None:
        raise UsageError(f"--plot draws one run: art runs RUN --plot {plot[0]}")
    if run is not None:
        return _one(run, plot or [], as_json)
    from art_cli.runs.directory import RunDir
    from art_cli.runs.summary import list_runs

    there = list_runs(runs_dir)
    found = [r for r in there if smoke or not RunDir(r.path).smoke.exists()]
    if as_json:
        _warn(found)
        return say(json.dumps([asdict(r) for r in found], default=str))
    if not found:
        say(f"no runs in {runs_dir}/ yet; start one: art run configs/quickstart.yaml")
    else:
        _table(found)
    if hidden := len(there) - len(found):
        say(f"not listed: {hidden} of art run --smoke; with them: art runs --smoke")
    return None


def _one(path: Path, plot: list[str], as_json: bool) -> None:
    """Show one run: the requested curves, or its line and the names of its metrics."""
    from art_cli.inspection.plot import metrics_of, points_of
    from art_cli.runs.directory import RunDir
    from art_cli.runs.summary import summary_of

    run = RunDir.open(path)
    metrics = metrics_of(run)
    curves = {name: points_of(run, name, metrics) for name in plot}
    if as_json:
        shown = curves or metrics
        points = {name: [[p.step, p.value] for p in found] for name, found in shown.items()}
        return say(json.dumps({**asdict(summary_of(run)), "metrics": points}, default=str))
    if not plot:
        _table([summary_of(run)])
        return _list_metrics(list(metrics))
    for number, (name, points) in enumerate(curves.items()):
        say("\n" * bool(number) + name)
        _draw(points)
    return None


def _list_metrics(names: list[str]) -> None:
    from rich.text import Text

    from art_cli.terminal.screen import Screen

    by_kind: dict[str, list[str]] = {}
    for name in sorted(names):
        kind, slash, rest = name.partition("/")
        by_kind.setdefault(kind + slash if slash else "", []).append(rest or kind)
    screen = Screen()
    screen.print("\nmetrics for --plot" if names else "\nno metrics yet")
    indent = max(map(len, by_kind), default=0) + 1
    for kind, rest in by_kind.items():
        screen.hang(kind, Text(visible(masked(", ".join(rest)))), indent)


def _draw(points: list[Point]) -> None:
    from art_cli.inspection.plot import drawn
    from art_cli.terminal.screen import WIDE, Screen

    screen = Screen()
    width = PLOT_IN_A_PIPE if screen.width == WIDE else screen.width
    if len(points) > 1:
        say(drawn(points, width, can_draw=screen.encoding.replace("-", "") == "utf8"))
    first, last = points[0], points[-1]
    best = max(points, key=lambda point: point.value)
    least = min(points, key=lambda point: point.value)
    ends = f"{first.value:.4g} at step {first.step}"
    if len(points) == 1:
        return say(ends)
    return say(
        f"{ends}, {last.value:.4g} at step {last.step}; "
        f"least {least.value:.4g} ({least.step}), most {best.value:.4g} ({best.step})"
    )


def _warn(found: list[RunSummary]) -> None:
    for line in (line for r in found for line in r.damaged):
        say(f"warning: {line}", file=sys.stderr)


def _table(found: list[RunSummary]) -> None:
    from rich.table import Table

    from art_cli.terminal.screen import Screen

    _warn(found)
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state", "step", "train", "val", "best val", "updated"):
        table.add_column(name, justify="right" if name not in ("run", "state") else "left")
    for r in found:
        rewards = [
            "-" if x is None else f"{x:.3f}"
            for x in (r.train_reward, r.val_reward, r.best_val_reward)
        ]
        step, when = f"{r.step}/{r.steps}", r.updated.astimezone().strftime("%m-%d %H:%M")
        table.add_row(f"{r.project}/{r.name}", r.state, step, *rewards, when)
    Screen().show(table)
