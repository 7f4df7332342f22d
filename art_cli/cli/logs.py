"""`art logs`: the log of a run, on this machine or on a cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.runs.directory import RunDir


def logs(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    name: Annotated[
        str, typer.Argument(help="run, or that of an engine or process: engine-0, rank-1.")
    ] = "run",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")
    ] = False,
    last: Annotated[
        int | None, typer.Option(min=0, help="Only so many lines from the end; default: all.")
    ] = None,
) -> None:
    """Print what a run has said: warnings, a line a step or so, how it ended; by name what its
    engines and processes have printed. A run on a cluster is followed there.

    Example:  art logs runs/default/quickstart --follow --last 20
    """
    from art_cli.inspection.logs import lines_of_log, log_file
    from art_cli.runs.directory import RunDir

    folder = RunDir.open(run)
    if follow and name == "run" and folder.cloud.exists() and folder.read_exit() is None:
        return _follow_there(folder)
    file = log_file(folder, name)
    for line in lines_of_log(file, last, lambda: follow and folder.state() == "running"):
        say(line)
    if follow:
        say(f"it is over: {folder.told()}", file=sys.stderr)
    else:
        _tell_others(folder, name)
    return None


def _tell_others(run: RunDir, name: str) -> None:
    from art_cli.inspection.logs import log_names

    if others := [other for other in log_names(run) if other != name]:
        say(f"other logs: {', '.join(others)}", file=sys.stderr)


def _follow_there(run: RunDir) -> None:
    """Print the output of the job on the cluster. Raise UsageError, PreflightError or ArtError."""
    from art_cli.backends.cloud import skypilot
    from art_cli.backends.cloud.run import read_sent

    sent = read_sent(run)
    say(f"{sent.name}; Ctrl-C lets go of it, and it goes on", file=sys.stderr)
    if sent.cluster is None:
        skypilot.follow_managed(sent.job)
    else:
        skypilot.follow(sent.cluster, sent.job)
    say("it is over; bring the run back: art run CONFIG --attach", file=sys.stderr)
