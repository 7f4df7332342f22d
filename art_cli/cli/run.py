"""`art run`: train."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli import inputs
from art_cli.cli.remote import run_there
from art_cli.errors import EXIT_INTERRUPTED, ArtError, BudgetError, Interrupted, UsageError
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.cli.existing_run import GoingOn
    from art_cli.cli.smoke import Smoke
    from art_cli.config.load import LoadedExperiment
    from art_cli.config.schema import Experiment
    from art_cli.loop import Outcome
    from art_cli.runs.directory import RunDir
    from art_cli.runs.trackers.run_log import LoggedConsole


def run(
    config: inputs.Configs,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the newest checkpoint, if there is one.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Begin anew: remove the run of this name that is there."),
    ] = False,
    from_step: Annotated[
        int | None,
        typer.Option(min=0, help="With --resume: go back to the checkpoint of this step."),
    ] = None,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="With --resume: also with other code or data.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved config and where it came from.")
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="One step on the CPU, with stand-ins for model and judge."),
    ] = False,
    on: Annotated[str | None, typer.Option(help="The cluster to train on.")] = None,
    attach: Annotated[
        bool, typer.Option("--attach", help="Watch the run that goes on there already.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Rent, or remove a run, without asking.")
    ] = False,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Train the experiment of a config file. With --smoke, try all of it in under a minute first,
    for nothing: a tiny model, no judge, and the env's gold() where it has one. With --on, train on
    a cluster (`art launch-cluster`), and have the run here all the same.

    Example:  art run configs/quickstart.yaml train.steps=50 --resume
    """
    from art_cli.cli.existing_run import GoingOn

    going_on = GoingOn(resume, overwrite, from_step, accept_changes)
    loaded = inputs.load([*config, *inputs.on_cluster(on)])
    is_elsewhere = loaded.experiment.backend.use == "skypilot" and (on is not None or not smoke)
    if not dry_run and is_elsewhere:
        if smoke or as_json or overwrite or from_step is not None:
            flags = "--smoke, --json, --overwrite and --from-step"
            raise UsageError(f"{flags} are of a run here; leave them out, or --on")
        again = f"art run {shlex.join(config)}{f' --on {on}' if on else ''}"
        options = going_on.options
        return run_there(loaded, again, runs_dir, going_on=options, attach=attach, yes=yes)
    if attach or (yes and not overwrite):
        raise UsageError("--attach and --yes are of a run on a cluster; name it: --on NAME")
    tried = _smoke(config, loaded, runs_dir, going_on) if smoke else None
    loaded = tried.loaded if tried else loaded
    if dry_run:
        return say(loaded.to_yaml(with_origins=True), end="")
    if "RANK" in os.environ and _serves(loaded.experiment.train.num_processes):
        return None
    from art_cli.runs.directory import RunDir

    cfg = loaded.experiment
    run = RunDir(runs_dir / cfg.project / cfg.name)
    if from_step is None and not smoke and going_on.is_settled(run, loaded, yes):
        return _report(run, loaded, as_json, None, None, f"art run {shlex.join(config)}")
    # A small model is faster with threads that sleep while they wait; set before torch starts.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    going_on.check_unchanged(run, loaded)
    again = f"art run {shlex.join(config)} {'--smoke' if smoke else '--resume'}"
    try:
        outcome = asyncio.run(_run(loaded, runs_dir, going_on, as_json, tried))
    except BudgetError as e:
        others = [word for word in config if not word.startswith("judge.max_usd=")]
        more = f"art run {shlex.join(others)} judge.max_usd=MORE --resume"
        raise BudgetError(f"{e}.\nAll finished steps are saved. Go on: {more}") from None
    _report(run, loaded, as_json, tried, outcome)
    if not outcome.finished:
        raise Interrupted(f"stopped after step {outcome.step}; go on: {again}")


def _smoke(config: list[str], loaded: LoadedExperiment, runs_dir: Path, going_on: GoingOn) -> Smoke:
    from art_cli.cli.smoke import begin

    if going_on.resume or going_on.overwrite:
        flag = "--resume" if going_on.resume else "--overwrite"
        raise UsageError(f"--smoke begins anew each time, so {flag} has no effect; leave it out")
    return begin(config, loaded, runs_dir)


def _serves(num_processes: int) -> bool:
    from art_cli.training.trainers.distributed.ranks import serve_if_launched

    return serve_if_launched(num_processes)


async def _run(
    loaded: LoadedExperiment,
    runs_dir: Path,
    going_on: GoingOn,
    as_json: bool,
    smoke: Smoke | None,
) -> Outcome:
    from art_cli.preflight.memory.fit import check_fit
    from art_cli.preflight.memory.gpus import present
    from art_cli.rollout.env_class import env_of
    from art_cli.rollout.first_episode import check_env
    from art_cli.runs.directory import RunDir
    from art_cli.runs.trackers.build import check_trackers
    from art_cli.runs.trackers.console import Console
    from art_cli.runs.trackers.run_log import LoggedConsole
    from art_cli.terminal.screen import Screen

    cfg = loaded.experiment
    first = await check_env(env_of(cfg.env), loaded.env_settings)
    check_trackers(loaded)  # fail now instead of after SFT
    run = RunDir(runs_dir / cfg.project / cfg.name)
    begun = run if going_on.resume and run.is_begun() else None
    known = [] if smoke else inputs.check_base(loaded, begun)
    tight = check_fit(loaded, present())
    if smoke:
        smoke.play_gold()
        smoke.make_model(first)
    if (
        going_on.overwrite and run.is_begun()
    ):  # the config and its env have passed all checks that need no model
        run.remove()
    history = run.read_metrics() if going_on.resume else []
    if (step := going_on.from_step) is not None:  # later steps are repeated
        history = [row for row in history if row["training_step"] <= step]
    screen = Screen(stderr=as_json)  # stdout is for the JSON
    header = _header(loaded)
    with Console(cfg.train.steps, header, history=history, console=screen) as shown:
        console = LoggedConsole(shown, cfg.train.steps, header, history)
        for line in [*_warnings(cfg, tight, is_smoke=smoke is not None), *known, *first.warnings]:
            console.say(f"warning: {line}")
        console.phase("loading torch and transformers")
        await asyncio.sleep(0)
        try:
            outcome = await _train(loaded, runs_dir, going_on, console, smoke)
        except ArtError as e:
            console.note(f"error: {e}")
            raise
    return outcome


async def _train(
    loaded: LoadedExperiment,
    runs_dir: Path,
    going_on: GoingOn,
    console: LoggedConsole,
    smoke: Smoke | None,
) -> Outcome:
    from art_cli.backends.local import LocalBackend
    from art_cli.config.yaml_values import read_yaml
    from art_cli.inspection.provenance import note_start
    from art_cli.loop import run_loop
    from art_cli.runs.trackers.base import Trackers
    from art_cli.runs.trackers.build import make_trackers
    from art_cli.runs.trackers.jsonl import JsonlTracker
    from art_cli.training.model import Stop, TrainableModel

    stop = Stop()
    _stop_on_interrupt(stop, console)
    cfg = loaded.experiment
    kind = smoke.model_class if smoke else TrainableModel
    model = kind.of(cfg, loaded.env_settings, loaded.to_yaml())

    def begin(run: RunDir) -> None:
        console.keep(run.logs)
        note_start(run, loaded)

    backend = LocalBackend(
        runs_dir,
        resume=going_on.resume,
        from_step=going_on.from_step,
        report=console.phase,
        say=console.say,
        stop=stop,
        claimed=begin,
    )
    async with backend:
        await model.register(backend)
        run = model.parts.run
        config = read_yaml(loaded.to_yaml())  # as written, without secrets
        mirrors = make_trackers(cfg, run, config, console.say)
        trackers = Trackers([JsonlTracker(run.metrics), console, *mirrors], console.say)
        state, message = "failed", ""
        try:
            outcome = await run_loop(model, trackers, stop, console.phase)
            state = "done" if outcome.finished else "interrupted"
        except ArtError as e:
            message = str(e)
            raise
        finally:
            run.write_status(state, model.step, cfg.train.steps, message)
            trackers.finish(state)
    return outcome


def _header(loaded: LoadedExperiment) -> str:
    cfg = loaded.experiment
    what = f"LoRA r={cfg.model.adapter.rank}" if cfg.model.adapter else "all weights"
    env, base = (loaded.document[a][b] for a, b in (("env", "use"), ("model", "base")))
    return f"{cfg.project}/{cfg.name} · {env} · {base}, {what} · seed {cfg.seed}"


def _warnings(cfg: Experiment, tight: str | None, *, is_smoke: bool) -> Iterator[str]:
    from art_cli.llms.stand_in import STAND_IN

    sampling, train = cfg.sampling, cfg.train
    if sampling.top_p < 1 or sampling.top_k > 0:
        yield (
            "sampling.top_p and top_k cut the distribution that is sampled from, but the policy is "
            "trained on all of it: the ratio is biased. Leave them at 1.0 and 0 to train"
        )
    if sampling.temperature != 1:
        yield (
            f"the policy is trained at temperature {sampling.temperature:g}; it will be at its "
            "best when it is served at that temperature too"
        )
    if 0 < train.steps <= train.warmup_steps:
        share = train.steps / (train.warmup_steps + 1)
        yield (
            f"train.steps={train.steps} ends within train.warmup_steps="
            f"{train.warmup_steps}: the learning rate rises to {share:.0%} of "
            "train.learning_rate and no further, as in the first steps of a longer run"
        )
    if tight:
        yield tight
    if cfg.judge and cfg.judge.model == STAND_IN and not is_smoke:
        yield (
            f"judge.model={STAND_IN} is nobody: its scores mean nothing, and they are learned from"
        )


def _stop_on_interrupt(stop: Any, console: LoggedConsole) -> None:
    """Handle Ctrl-C: the first finishes the step, saves and ends; the second ends immediately."""

    def on_signal(signum: int, frame: object) -> None:
        if stop.requested:
            console.finish("interrupted")
            os._exit(EXIT_INTERRUPTED)
        stop.requested = True
        console.say("stopping after this step (Ctrl-C again: stop now, without saving)")

    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGTERM, on_signal)


def _report(
    run: RunDir,
    loaded: LoadedExperiment,
    as_json: bool,
    smoke: Smoke | None,
    outcome: Outcome | None,
    command: str = "",
) -> None:
    """Print the results of a run. Without `outcome`, it was complete before this `command`."""
    from art_cli.cli.existing_run import results
    from art_cli.cli.tables import comparison
    from art_cli.cli.why import tell_shortly
    from art_cli.view.file import lacks_report
    from art_cli.view.frame import has_charts

    cfg, status = loaded.experiment, run.read_status()
    is_finished = outcome is None or outcome.finished
    step = outcome.step if outcome else status.step if status else cfg.train.steps
    shown = smoke.report() if smoke and is_finished else None
    is_due = is_finished and not smoke and (outcome or lacks_report(run))
    page = _write_page(run) if is_due else None
    found = results(run, cfg.eval and cfg.eval.split)
    if as_json:
        row = {"run": str(run.root), "step": step, "finished": is_finished, **found}
        return say(json.dumps(row | ({"smoke": shown} if shown else {})))
    if smoke and shown:
        return smoke.tell(shown)
    if outcome is None:
        left = "only its page was left to write" if page else "nothing was left to do"
        say(f"{run.root} is finished: {run.told()}; {left}")
    baseline, final = found["baseline"], found["final"]
    if baseline and final["step"] > 0:
        comparison(("untrained", baseline), ("trained", final))
    say(f"\nEverything is in {run.root}   (metrics.jsonl, trajectories/, checkpoints/)")
    tell_shortly(run)
    first = "" if has_charts() else "pip install 'art-cli[view]', then  "
    say(f"See it on a page:   {page or f'{first}art view {run.root}'}")
    if is_finished:
        say(f"Evaluate it again:  art eval {run.root} --checkpoint best --episodes 256")
    if outcome is None:
        say(f"Train it further:   {command} train.steps={2 * max(step, 1)} --resume")
        say(f"Begin it anew:      {command} --overwrite")


def _write_page(run: RunDir) -> str | None:
    """Write the page of a finished run and return its file, or None if that fails."""
    from art_cli.view.file import write_report

    try:
        page = write_report(run)
    except Exception as e:  # the run is complete, so a failing page must not fail it
        say(f"the page of the run was not written: {e}", file=sys.stderr)
        return None
    return page and str(page)
