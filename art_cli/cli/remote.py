"""`art run --on NAME`: train on a cluster as if it were here."""

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
    """Send the run, or with `attach` find it, and watch it to its end; exits as it did.

    `going_on` are the options of `art run` about a run that is there already; `command` is what the
    user typed, without these and --attach.
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
    """Return the options that each of many runs of a config is given, to rent what it needs.

    Raises UsageError where each of them rents machines of its own, and nobody agreed to that.
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
    """Show what would be rented, and ask. Raises UsageError where there is nobody to ask."""
    say(f"{plan.table}\n\n{what}: {plan.infra}, ${plan.usd_per_hour:.2f} an hour until it ends")
    return yes or confirm("Rent it?")


def tell(text: str) -> None:
    """Notes for the user, beside what the run itself prints."""
    say(text, file=sys.stderr)
