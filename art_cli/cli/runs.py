"""`art runs`: what was run here, and how far it is."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from art_cli.cli.inputs import RunsDir
from art_cli.printed import say


def runs(
    runs_dir: RunsDir = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the runs here: state, step, last and best reward.

    Example:  art runs
    """
    from rich.table import Table

    from art_cli.runs.directory import list_runs
    from art_cli.system.screen import Screen

    found = list_runs(runs_dir)
    for line in (line for r in found for line in r.damaged):
        say(f"warning: {line}", file=sys.stderr)
    if as_json:
        return say(json.dumps([asdict(r) for r in found], default=str))
    if not found:
        return say(f"no runs in {runs_dir}/ yet; start one: art run configs/quickstart.yaml")
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
    return None
