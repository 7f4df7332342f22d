"""`art sweep`: search for the best values of some keys."""

from __future__ import annotations

import json
import shlex
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from art_cli.cli import inputs
from art_cli.cli.remote import check_renting
from art_cli.errors import Interrupted, PreflightError
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.lab.fleet import Fleet
    from art_cli.lab.ranking import Optimism
    from art_cli.lab.space import Space
    from art_cli.lab.study import TrialRecord
    from art_cli.lab.sweep import Aim

CONFIRMED = 8  # seeds of the proposed comparison
METAVAR = "CONFIG KEY=VALUES..."
RANGES = "KEY=A,B,C  KEY=LOW..HIGH  KEY=LOW..HIGH:log  KEY=LOW..HIGH:STEP; config files; overrides."


def sweep(
    given: Annotated[list[str], typer.Argument(metavar=METAVAR, help=RANGES)],
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="The most trials to run.")] = 20,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Runs of each trial.")] = 1,
    metric: Annotated[str, typer.Option(help="A metric in metrics.jsonl; higher is better.")] = (
        "val/reward"
    ),
    jobs: Annotated[int, typer.Option(min=1, help="Trials at once.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Its folder in runs/. Default: made from what is swept.")
    ] = None,
    on: inputs.Clusters = None,
    yes: Annotated[bool, typer.Option("--yes", help="Rent the machines for it.")] = False,
    runs_dir: inputs.RunsDir = Path("runs"),
    as_json: inputs.AsJson = False,
) -> None:
    """Try values of some keys, each an `art run` of its own, and rank them by the held-out reward
    at the end. Optuna chooses what to try next, and trials that are behind are stopped early. The
    same command goes on with what was interrupted, and with more --trials.

    Example:  art sweep configs/quickstart.yaml train.group_size=4,8,16
    """
    if util.find_spec("optuna") is None:
        raise PreflightError("art sweep needs Optuna: pip install 'art-cli[sweep]'")
    from art_cli.lab.fleet import Fleet
    from art_cli.lab.space import read_space
    from art_cli.lab.study import opened
    from art_cli.lab.sweep import Aim, Sweep, first_rung, identity

    named = [f"project={name}"] if name else []
    space = read_space(given, lambda words: inputs.load([*words, *named]))
    aim = Aim(metric=metric, num_seeds=seeds)
    rung, key = first_rung(space, aim), identity(space, aim)
    inputs.check_base(space.loaded)
    project = name or f"sweep-{space.loaded.experiment.name}-{key}"
    fleet = Fleet(project, runs_dir, jobs, on or (), check_renting(space.loaded, yes))
    out = sys.stderr if as_json else sys.stdout

    def told(trial: TrialRecord) -> None:
        inputs.progress("")
        say(_line(trial, aim), file=out)

    with opened(fleet.folder, space, key, rung, trials) as study:
        say(f"{study.total} trials in {fleet.folder}; {_when_stopped(space, rung)}", file=out)
        try:
            Sweep(study, fleet, space, aim, inputs.progress, told).go_on()
        except KeyboardInterrupt:
            raise Interrupted(fleet.interruption()) from None
        table = study.table()
    _conclude(table, space, aim, fleet, as_json)


def _when_stopped(space: Space, rung: int) -> str:
    steps = space.loaded.experiment.train.steps
    if rung >= steps:
        return "none is stopped early, as nothing is evaluated before the end (eval.every)"
    rungs = [str(at) for at in (rung, 3 * rung, 9 * rung) if at < steps]
    return f"after step {' and '.join(rungs)} of {steps} the best third goes on"


def _line(trial: TrialRecord, aim: Aim) -> str:
    """Return the line that is printed when a trial has ended."""
    head = f"{trial.name}  {shlex.join(_words(trial))}"
    if trial.state == "failed":
        return f"{head}  failed: {trial.said}"
    value = "" if trial.value is None else f"  {aim.metric} {trial.value:.3f}"
    if trial.same_as is not None:
        return f"{head}{value}, the same as t{trial.same_as}, so not run again"
    return f"{head}{value}{f', stopped after step {trial.step}' * (trial.state == 'stopped')}"


def _words(trial: TrialRecord) -> list[str]:
    from art_cli.lab.space import overrides

    return overrides(trial.point)


def _conclude(
    table: list[TrialRecord], space: Space, aim: Aim, fleet: Fleet, as_json: bool
) -> None:
    """Print the ranked trials, commands for the best one, and how reliable the ranking is."""
    from art_cli.lab.ranking import as_json as told
    from art_cli.lab.ranking import best_of, num_points, optimism

    best = best_of(table)
    found = optimism(table, _ci(best, aim, fleet) if best else None)
    commands = _commands(best, space) if best else {}
    if as_json:
        return say(json.dumps(told(table, found, commands)))
    _show(table, aim)
    if not best:
        return say("no trial has ended, so there is no best one; see what they said above")
    own = ", which are the values of the config itself" if best.point == space.own else ""
    say(f"The best: {shlex.join(_words(best))}{own}")
    say(f"Train with it:  {commands['run']}")
    if (num := num_points(table)) > 1:
        say(_how_optimistic(found, num))
        if "compare" in commands:
            say(f"Is it better than the config, over new seeds?  {commands['compare']}")
    return say(f"See the runs on a page:  art view {fleet.folder}")


def _ci(best: TrialRecord, aim: Aim, fleet: Fleet) -> float | None:
    """Return half the width of the 95% interval of the best trial's last evaluation."""
    from art_cli.lab.sweep import read_values

    if aim.metric != "val/reward":
        return None
    run = fleet.run_dir(f"{best.name}-{aim.seeds[0]}")
    found = read_values(run, "val/reward_ci")
    return found[max(found)] if found else None


def _commands(best: TrialRecord, space: Space) -> dict[str, str]:
    """Return the command that trains with the best values, and the one that confirms them."""
    words = _words(best)
    found = {"run": f"art run {shlex.join([*space.words, *words])}"}
    if space.is_whole and best.point != space.own:
        first, other = (shlex.quote(shlex.join(w)) for w in (space.words, words))
        found["compare"] = f"art compare {first} {other} --seeds {CONFIRMED}"
    return found


def _how_optimistic(found: Optimism | None, num: int) -> str:
    said = f"Its value is optimistic: the luckiest of {num} trials looks best. "
    if found is None:
        return f"{said}By how much is not known: --seeds 2 or more shows it."
    numbers = f"{found.errors:.1f} standard errors of {found.error:.3f}"
    if found.num_seeds > 1:
        known = f"as known from the {found.num_seeds} seeds of each"
    else:
        known = "of its evaluation alone; what the seed does to training comes on top"
    return f"{said}Chance alone would lift it by {found.amount:.3f} ({numbers}, {known})."


def _show(table: list[TrialRecord], aim: Aim) -> None:
    from rich.table import Table

    from art_cli.lab.ranking import ranked
    from art_cli.terminal.screen import Screen

    shown = Table(title="trials, best first", title_justify="left")
    shown.add_column("")
    shown.add_column(aim.metric, justify="right")
    shown.add_column("")
    for key in table[0].point:
        shown.add_column(key, justify="right")
    for trial in ranked(table):
        value = "" if trial.value is None else f"{trial.value:.3f}"
        state = {"done": "", "stopped": f"stopped after step {trial.step}"}
        if trial.same_as is not None:
            state["done"] = state["stopped"] = f"as t{trial.same_as}"
        shown.add_row(trial.name, value, state.get(trial.state, trial.state), *trial.point.values())
    Screen().show(shown)
