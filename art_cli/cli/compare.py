"""`art compare`: which of several configs learns better."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.cli.remote import check_renting
from art_cli.errors import Interrupted
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.evaluation.statistics import Estimate
    from art_cli.lab.candidates import Contender
    from art_cli.lab.curves import Curve
    from art_cli.lab.standings import Curves, Standing

Error = Annotated[
    float, typer.Option(min=0.001, max=0.5, help="The largest chance that the answer is wrong.")
]


def compare(
    candidates: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG OTHER...",
            help="Config files, or overrides of the first; several words of one go in quotes.",
        ),
    ],
    seeds: Annotated[int, typer.Option(min=2, max=1000, help="The most seeds to train with.")] = 16,
    error: Error = 0.05,
    target: Annotated[
        float | None, typer.Option(help="Also say what each needs to reach this held-out reward.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once; CPU seconds then differ.")] = 1,
    on: inputs.Clusters = None,
    yes: Annotated[bool, typer.Option("--yes", help="Rent the machines for it.")] = False,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Train each config with the same seeds, one after another, and say which learns better: its
    held-out reward after equal steps, tokens and CPU seconds, with intervals that hold although it
    stops as soon as the answer is known. What is interrupted goes on with the same command.

    Example:  art compare configs/quickstart.yaml train.loss=gspo "train.loss=gspo train.steps=75"
    """
    from art_cli.lab.candidates import key_of, read_candidates
    from art_cli.lab.fleet import Fleet
    from art_cli.lab.standings import as_json as told
    from art_cli.lab.standings import is_decided, standings, verdict
    from art_cli.lab.trials import train_with_seed

    found = read_candidates(candidates, inputs.load)
    project = f"compare-{found[0].loaded.experiment.name}-{key_of(found)}"
    flags = check_renting(found[0].loaded, yes)
    fleet = Fleet(project, runs_dir, jobs, on or (), flags)
    out = sys.stderr if as_json else sys.stdout
    for c in found:
        more = f"   (all of {found[0].letter}, with this)" if c.is_override else ""
        say(f"{c.letter}  {c.label}{more}", file=out)
    if any(c.is_override for c in found) and not all(c.is_override for c in found[1:]):
        say('An override that belongs to a config stands in quotes with it: "b.yaml x=1"', file=out)
    say(f"{len(found)} runs a seed, up to {seeds} seeds, in {fleet.folder}", file=out)
    curves: Curves = []
    standing: list[Standing] = []
    for seed in range(seeds):
        try:
            curves.append(train_with_seed(fleet, found, seed, inputs.progress))
        except KeyboardInterrupt:
            raise Interrupted(fleet.interruption()) from None
        inputs.progress("")
        standing = standings(found, curves, error, target)
        say(f"seed {seed}:  {_line(found, curves[-1])}", file=out)
        if is_decided(standing):
            break
    if as_json:
        return say(json.dumps(told(standing, len(curves), error)))
    _table(standing, target)
    say(verdict(standing, len(curves), error))
    say(f"See the runs on a page:  art view {fleet.folder}")
    return None


def _line(candidates: list[Contender], curves: dict[str, Curve]) -> str:
    first = curves[candidates[0].letter].last.reward
    return "   ".join(
        f"{c.letter} {curves[c.letter].last.reward:.3f}"
        + (f" ({curves[c.letter].last.reward - first:+.3f})" if c is not candidates[0] else "")
        for c in candidates
    )


def _table(found: list[Standing], target: float | None) -> None:
    """Print a column a candidate."""
    from rich.table import Table

    from art_cli.terminal.screen import Screen

    table = Table(title="held-out reward, means over seeds", title_justify="left")
    table.add_column("")
    for s in found:
        table.add_column(s.letter, justify="right")
    rows: list[tuple[str, list[str]]] = [
        ("at the end", [f"{s.reward:.3f}" for s in found]),
        ("the worst seed", [f"{s.worst:.3f}" for s in found]),
        ("mean over the steps", [f"{s.area:.3f}" for s in found]),
    ]
    for axis, words in _equal().items():
        rows.append((words, [_change(s.changes.get(axis)) for s in found]))
    rows.append(("CPU seconds of training", [f"{s.cpu_s:.0f}" for s in found]))
    rows.append(("fell by 0.2 or more", [str(s.num_collapsed) for s in found]))
    if target is not None:
        rows.append((f"reach {target:g}: seeds", [str(s.reached.num) for s in found if s.reached]))
        for axis, words in (("step", "steps"), ("tokens", "tokens"), ("cpu_s", "CPU seconds")):
            values = [getattr(s.reached, axis) for s in found]
            cells = ["-" if v is None else f"{v:,.0f}" for v in values]
            rows.append((f"  {words}, median", cells))
    for label, cells in rows:
        table.add_row(label, *cells)
    Screen().show(table)


def _equal() -> dict[str, str]:
    from art_cli.lab.standings import EQUAL

    return {axis: f"{words}, against a" for axis, words in EQUAL.items()}


def _change(change: Estimate | None) -> str:
    if change is None:
        return ""
    bounds = f"\n[{change.low:+.3f}, {change.high:+.3f}]" if change.is_bounded else ""
    return f"{change.value:+.3f}{bounds}"
