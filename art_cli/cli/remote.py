"""`art run --on NAME`: train on a cluster, with the same output and files as a local run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from art_cli.cli.inputs import check_base, confirm
from art_cli.errors import ArtError, Interrupted, UsageError
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.backends.cloud.plan import RentalPlan
    from art_cli.config.load import LoadedExperiment


def run_there(
    loaded: LoadedExperiment,
    command: str,
    runs_dir: Path,
    *,
    going_on: list[str],
    attach: bool,
    yes: bool,
) -> None:
    """Start the run on the cluster, or with `attach` find it; follow it and exit with its exit
    code.

    `going_on` are the options of `art run` for an existing run. `command` is the user's command
    without these options and --attach.
    """
    from art_cli.backends.cloud import run as remote
    from art_cli.runs.directory import RunDir

    cfg = loaded.experiment
    run = RunDir(runs_dir / cfg.project / cfg.name)
    if attach:
        sent = remote.find_sent(loaded, run)
    else:
        for line in check_base(loaded):
            tell(f"warning: {line}")
        sent = remote.send(loaded, run, going_on, lambda plan: agreed(plan, "managed job", yes))
    tell(f"{sent.name}; Ctrl-C lets go of it, and it goes on")
    try:
        code = remote.watch(sent, run, tell)
    except KeyboardInterrupt:
        raise Interrupted(
            f"\nlet go of {sent.name}, which goes on.\n"
            f"watch it again:  {command} --attach\ncancel it:       art cancel {run.root}"
        ) from None
    except ArtError as error:
        raise type(error)(
            f"lost sight of {sent.name}: {error}\nIf it goes on, watch it again: {command} --attach"
        ) from None
    tell(f"everything is in {run.root}")
    if code:
        raise typer.Exit(code)


def check_renting(loaded: LoadedExperiment, yes: bool) -> list[str]:
    """Return the options for each of many runs of a config, which let it rent machines.

    Raise UsageError if each of the runs would rent its own machines and the user did not consent.
    """
    from art_cli.backends.cloud.task import is_managed

    backend = loaded.experiment.backend
    if backend.use != "skypilot" or not is_managed(backend):
        return []
    if not yes:
        raise UsageError(
            "backend.storage: each of the runs rents machines of its own until it ends (art "
            "launch-cluster CONFIG --dry-run shows their price); agree to all of them: --yes"
        )
    return ["--yes"]


def agreed(plan: RentalPlan, what: str, yes: bool) -> bool:
    """Show what would be rented, and ask for consent. Raise UsageError without a terminal."""
    say(f"{plan.table}\n\n{what}: {plan.infra}, ${plan.usd_per_hour:.2f} an hour until it ends")
    return yes or confirm("Rent it?")


def tell(text: str) -> None:
    """Print a note to stderr, apart from the output of the run."""
    say(text, file=sys.stderr)
