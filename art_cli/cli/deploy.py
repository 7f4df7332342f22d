"""`art deploy`, `art undeploy`, `art deployments`: deployed checkpoints and their costs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.cli.inputs import progress
from art_cli.errors import ArtError, Interrupted, PreflightError, UsageError
from art_cli.system.progress import silent
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.deploy.base import Deployment, Plan, Source, Target
    from art_cli.deploy.store import Store
    from art_cli.runs.directory import RunDir

RunArgument = Annotated[Path, typer.Argument(help="A run directory.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
LOOK = 1.0  # seconds between checks of the server that this command waits for


def deploy(
    run: RunArgument,
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings of the target, as key=value.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="together, hf, merged, serve, skyserve, ollama or FILE.py:NAME; default: "
            "deploy.use."
        ),
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, or a step.")] = "best",
    name: Annotated[
        str | None, typer.Option(help="Its name at the target. Default: PROJECT-NAME-STEP.")
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until it is ready; a server: until its end."),
    ] = True,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Compare its answers with the checkpoint's own."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    yes: Yes = False,
    as_json: inputs.AsJson = False,
) -> None:
    """Serve a checkpoint of a run, or write it in a form that others serve.

    What costs money is asked for first. The same command again finds what is there, and goes on
    where it was interrupted.

    Example:  art deploy runs/default/quickstart --to together base=Qwen/Qwen3-8B --verify
    """
    from art_cli.config.sections.deploy import TARGETS
    from art_cli.config.targets import read_target
    from art_cli.deploy.base import Source
    from art_cli.deploy.build import make_target
    from art_cli.deploy.lifecycle import check_name
    from art_cli.deploy.lifecycle import deploy as bring
    from art_cli.deploy.store import Store

    loaded, folder = inputs.open_run(run)
    configured = loaded.experiment.deploy
    kind = read_target("--to ", to) if to else configured.use if configured else None
    if kind is None:
        raise UsageError(f"where to? Add --to (one of {', '.join(TARGETS)})")
    own = configured if configured and configured.use == kind else None
    source = Source.open(folder, loaded.experiment, loaded.env_settings, checkpoint)
    target = make_target(kind, own.args if own else {}, settings or [])
    plan = target.plan(source, name or (own and own.name) or source.default_name)
    known = check_name(kind, plan)
    if verify and not plan.serves:
        raise UsageError(f"--verify: {kind} serves nothing that could be asked; leave it out")
    if plan.lacks and not dry_run:
        raise PreflightError(plan.lacks)
    if not as_json:
        _show(plan)
    if dry_run:
        return say(json.dumps(_row(plan))) if as_json else say("\n(a dry run: nothing is made)")
    if plan.bills and not yes and not (known and known.billed_since):
        _ask("Start it?")
    store, ends_here = Store(folder), plan.local and wait
    with _ending(store, target) if ends_here else nullcontext([]) as started:
        try:
            deployment = bring(kind, target, plan, progress, wait=wait)
        finally:
            progress("")
        started.append(deployment)
        _say_done(deployment, as_json)
        if verify and deployment.state == "ready":
            _verify(loaded, source, deployment, as_json)
        if ends_here:
            _stay(store, target, deployment)
    return None


def undeploy(
    run: RunArgument,
    name: Annotated[
        str | None, typer.Argument(help="Which, as `art deployments` lists them.")
    ] = None,
    yes: Yes = False,
    as_json: inputs.AsJson = False,
) -> None:
    """End a deployment of a run, and what it costs.

    Example:  art undeploy runs/default/quickstart
    """
    from art_cli.deploy.build import make_target
    from art_cli.deploy.lifecycle import undeploy as end
    from art_cli.deploy.store import Store
    from art_cli.runs.directory import RunDir

    inputs.read_dotenv(Path(".env"))
    folder = RunDir.open(run)
    store = Store(folder)  # the config of the run and its env may no longer be right
    deployment = _find(store, run, name)
    if _is_foreign(folder, deployment):
        say(
            f"warning: {run} was not made by `art run` of this account on this machine. The "
            f"target of this deployment is run as you: {deployment.target}",
            file=sys.stderr,
        )
    if not yes:
        _ask(f"End {deployment.name} on {deployment.target}?")
    try:
        left = end(store, make_target(deployment.target, {}), deployment, progress)
    finally:
        progress("")
    if as_json:
        return say(json.dumps(asdict(deployment)))
    spent = f", and has cost about ${deployment.usd:.2f}" if deployment.usd else ""
    return say(f"{deployment.name} on {deployment.target} has ended{spent}; {left}")


def deployments(
    run: Annotated[Path | None, typer.Argument(help="A run directory; default: all runs.")] = None,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """List what is deployed: where, in which state by the target's own word, and what it has cost.

    Example:  art deployments
    """
    from rich.table import Table

    from art_cli.deploy.store import Store, cost
    from art_cli.runs.directory import RunDir
    from art_cli.runs.summary import list_runs
    from art_cli.terminal.screen import Screen

    inputs.read_dotenv(Path(".env"))
    roots = [run] if run else [r.path for r in list_runs(runs_dir)]
    found = [(root, d) for root in roots for d in _deployed(Store(RunDir(root)), run is None)]
    rows = [(root, d, _state(RunDir(root), d), cost(d)) for root, d in found]
    if as_json:
        listed = [
            {"run": str(root), **asdict(d), "now": state, "usd_so_far": usd}
            for root, d, state, usd in rows
        ]
        return say(json.dumps(listed))
    if not rows:
        return say("nothing is deployed; deploy a run: art deploy RUN --to merged")
    table = Table(box=None, pad_edge=False)
    for column in ("run", "to", "name", "step", "state", "cost", "url"):
        right = column in ("step", "cost")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for root, d, state, usd in rows:
        price = "-" if usd == 0 else "unknown" if usd is None else f"${usd:.2f}"
        where = f"{root.parent.name}/{root.name}"
        table.add_row(where, d.target, d.name, str(d.step), state, price, d.url or "-")
    Screen().show(table)
    return None


def _deployed(store: Store, is_one_of_many: bool) -> list[Deployment]:
    """Return a run's deployments. Raise ArtError for a damaged record, unless runs are listed."""
    try:
        return store.all()
    except ArtError as e:
        if not is_one_of_many:
            raise
        say(f"warning: {e}", file=sys.stderr)
        return []


def _find(store: Store, root: Path, name: str | None) -> Deployment:
    there = [d for d in store.all() if d.state != "stopped"]
    chosen = [d for d in there if name in (None, d.name, f"{d.target}/{d.name}")]
    if len(chosen) == 1:
        return chosen[0]
    if not there:
        copied = [f"; it is a copy of {o}: art undeploy {o}" for o in store.originals()]
        raise UsageError(f"{root}: nothing is deployed{''.join(copied[:1])}")
    names = ", ".join(f"{d.target}/{d.name}" for d in there)
    what = "say which" if chosen else f"there is no {name}"
    raise UsageError(f"{root}: {what}; its deployments: {names}")


def _is_foreign(run: RunDir, deployment: Deployment) -> bool:
    """Return whether another account may have named the code that a deployment's target is."""
    from art_cli.runs.maker import is_own

    return ":" in deployment.target and not is_own(run)


def _state(run: RunDir, deployment: Deployment) -> str:
    from art_cli.deploy.build import make_target

    if deployment.state == "stopped":
        return "stopped"
    if _is_foreign(run, deployment):
        return f"{deployment.state}? (the run was made elsewhere: its target's code is not run)"
    try:
        return make_target(deployment.target, {}).state(deployment)
    except ArtError as e:
        return f"{deployment.state}? ({e})"


def _show(plan: Plan) -> None:
    lines = [("deploy", plan.source.title), *plan.lines]
    if plan.lacks:
        lines.append(("lacks", plan.lacks))
    for what, how in lines:
        say(f"{what:<9} {how}")


def _row(plan: Plan) -> dict[str, object]:
    return {
        "name": plan.name,
        "step": plan.source.step,
        "bills": plan.bills,
        "usd_per_hour": plan.usd_per_hour,
        "lacks": plan.lacks or None,
        **dict(plan.lines),
    }


def _ask(question: str) -> None:
    if not inputs.confirm(question):
        raise Interrupted("nothing was done")


def _say_done(deployment: Deployment, as_json: bool) -> None:
    if as_json:
        return say(json.dumps(asdict(deployment)))
    if deployment.state != "ready":
        return say(f"\n{deployment.name} is on its way; the same command waits for it")
    say(f"\n{deployment.name} is ready: {deployment.url}")
    if deployment.model:
        name = deployment.key_env
        key = f'"${name}"' if name else "none"
        say()
        if deployment.key:
            say(f"  export {name}={deployment.key}  (made now; it is not shown again)")
        elif name:
            say(f"  export {name}=...  (its key: a shell does not read .env)")
        say(f"  export OPENAI_BASE_URL={deployment.url}")
        say(f"  export OPENAI_API_KEY={key}")
        say(f"  model: {deployment.model}")
    return None


def _verify(
    loaded: LoadedExperiment, source: Source, deployment: Deployment, as_json: bool
) -> None:
    from art_cli.deploy.verify import verify

    if deployment.key_env and deployment.key:
        os.environ[deployment.key_env] = deployment.key  # where a model's key is looked for
    try:
        found = asyncio.run(verify(loaded, source, deployment, progress))
    finally:
        progress("")
    if as_json:
        return say(json.dumps({"turns": found.turns, "agreed": found.agreed}))
    say(f"\nIt says {found.agreed} of {found.turns} turns as the checkpoint does", end="")
    say(f" ({found.share:.0%}).")
    if found.example:
        mine, theirs = found.example
        say(f"  the checkpoint:   {mine!r}\n  what is served:  {theirs!r}")
    return None


@contextmanager
def _ending(store: Store, target: Target) -> Iterator[list[Deployment]]:
    """End the servers in the list when the block ends, at SIGTERM and when the terminal closes.

    SIGKILL cannot be handled; in that case the server's guard process ends it.
    """
    from art_cli.deploy.lifecycle import undeploy as end

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # ignored signals, as under nohup, stay ignored
            signal.signal(number, stop)
    started: list[Deployment] = []
    try:
        yield started
    finally:
        for deployment in started:
            if _is_recorded(store, deployment):
                end(store, target, deployment, silent)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_recorded(store: Store, deployment: Deployment) -> bool:
    """Return whether the server is still the one in the record, neither ended nor replaced."""
    known = store.find(deployment.target, deployment.name)
    return known is not None and known.made.get("pid") == deployment.made.get("pid")


def _stay(store: Store, target: Target, deployment: Deployment) -> None:
    """Wait until Ctrl-C, or until the server ends."""
    try:
        say("\nCtrl-C ends it; --no-wait leaves it running.")
        while target.state(deployment) != "stopped":  # a failed server may recover
            time.sleep(LOOK)
        while store.is_busy(deployment):  # `art undeploy` updates the record last
            time.sleep(LOOK)
        if _is_recorded(store, deployment):
            raise ArtError(
                "the server ended by itself; its output is in server.log, by the weights"
            )
    except KeyboardInterrupt:
        pass
    with suppress(OSError):  # the terminal may have closed
        say("\nended")
