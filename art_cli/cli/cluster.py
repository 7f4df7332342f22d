"""`art launch-cluster`, `art clusters`, `art cluster`, `art cancel`: rented machines."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli import inputs
from art_cli.cli.remote import agreed, tell
from art_cli.errors import Interrupted
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.backends.cloud.plan import RentalPlan

app = typer.Typer(
    help="Stop a rented cluster, or end it.", no_args_is_help=True, rich_markup_mode=None
)

Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


def launch_cluster(
    config: inputs.Configs,
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    gpus: Annotated[str | None, typer.Option(help="What it must have: H100:1.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be rented, and its price.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(help="Write a task for `sky launch` into this folder instead.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Rent the machines of a config's section `backend` and install art there. Shows what they
    cost and asks first; a cluster that is up is left as it is.

    Example:  art launch-cluster config.yaml --name art --gpus H100:1
    """
    from art_cli.backends.cloud import run as remote
    from art_cli.backends.cloud.task import cluster_of

    accelerators = [] if gpus is None else [f"backend.resources.accelerators={json.dumps(gpus)}"]
    called = inputs.on_cluster(name) or ["backend.use=skypilot"]
    loaded = inputs.load([*config, *called, *accelerators])
    if export:
        file = remote.export(loaded, export)
        return say(f"{file} is a task of SkyPilot: sky launch -c NAME {file}")
    cluster = cluster_of(loaded.experiment)

    def confirm(plan: RentalPlan) -> bool:
        if dry_run:
            agreed(plan, cluster, yes=True)
            return False
        if agreed(plan, cluster, yes):
            return True
        raise Interrupted("nothing was rented")

    if remote.make_ready(loaded, cluster, confirm, tell):
        configs = " ".join(config)
        say(
            f"\n{cluster} is ready\n"
            f"  train there       art run {configs} --on {cluster}\n"
            f"  a shell           ssh {cluster}    (then: . ~/.art/venv/bin/activate)\n"
            f"  VS Code           code --remote ssh-remote+{cluster} /path/there\n"
            f"  end it            art cluster down {cluster}"
        )
    return None


def clusters(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the rented clusters: state, machines, since when, and what they have cost.

    Example:  art clusters
    """
    from art_cli.backends.cloud import skypilot

    found = skypilot.clusters()
    if as_json:
        return say(json.dumps([asdict(c) for c in found], default=_json))
    if not found:
        return say("no clusters; rent one: art launch-cluster config.yaml")
    return _table(found)


def _table(found: list[Any]) -> None:
    from rich.table import Table

    from art_cli.terminal.screen import Screen

    table = Table(box=None, pad_edge=False)
    for column in ("cluster", "state", "machines", "where", "up for", "autostop", "cost"):
        table.add_column(column, justify="right" if column in ("up for", "cost") else "left")
    for c in found:
        hours = (datetime.now(UTC) - c.since).total_seconds() / 3600
        idle = "never" if c.autostop_minutes is None else f"{c.autostop_minutes} min idle"
        cost = f"${c.usd:.2f}"
        table.add_row(c.name, c.state, c.resources, c.infra, f"{hours:.1f} h", idle, cost)
    Screen().show(table)


def _json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@app.command("stop")
def stop(name: str) -> None:
    """Stop a cluster's machines and keep their disks, which cost little.

    Example:  art cluster stop art
    """
    from art_cli.backends.cloud import skypilot

    skypilot.find(name)
    skypilot.stop(name)
    say(f"{name} is stopped; its disks are kept (and billed): art cluster down {name}")


@app.command("down")
def down(name: str) -> None:
    """End a cluster's machines and remove their disks.

    Example:  art cluster down art
    """
    from art_cli.backends.cloud import skypilot

    skypilot.find(name)
    skypilot.down(name)
    say(f"{name} is gone, and nothing of it is billed any more")


def cancel(
    target: Annotated[
        list[str], typer.Argument(help="The folder of a run, or its config and overrides.")
    ],
    runs_dir: inputs.RunsDir = Path("runs"),
) -> None:
    """End a run on a cluster. Its last checkpoint stays; the cluster does too.

    Example:  art cancel runs/default/quickstart
    """
    from art_cli.backends.cloud import run as remote
    from art_cli.runs.directory import RunDir

    root = Path(target[0])
    if not root.is_dir():
        cfg = inputs.load(target).experiment
        root = runs_dir / cfg.project / cfg.name
    remote.cancel(RunDir(root), tell)
