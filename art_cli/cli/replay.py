"""`art replay`: compare a stored episode with its env's answers today."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli.inputs import AllowWrites, AsJson, load
from art_cli.errors import EXIT_FAILED, Interrupted, UsageError
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.config.load import LoadedExperiment
    from art_cli.inspection.groups import Row
    from art_cli.inspection.replay import Replay
    from art_cli.runs.directory import RunDir


def replay(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[int, typer.Argument(help="A step.")],
    scenario: Annotated[str, typer.Argument(help="A scenario, or the number of its group.")],
    sibling: Annotated[
        int | None, typer.Option(min=0, help="Of its siblings, this one; default: all.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "train",
    stop: Annotated[
        bool, typer.Option("--break", help="Stop in the debugger before each call of the env.")
    ] = False,
    allow_writes: AllowWrites = False,
    as_json: AsJson = False,
) -> None:
    """Play a stored episode against its env again, without a model: each call and word of then, and
    what the env answers now. Ends with 0 where all is as it was, with 1 where something differs,
    and with 2 where it cannot be played again.

    Example:  art replay runs/default/quickstart 40 train-1448
    """
    from art_cli.inspection.groups import open_step, scenario_of
    from art_cli.runs.directory import RunDir

    folder = RunDir.open(run)
    found = open_step(folder, step, split)
    rows = found.groups[found.find(scenario)]
    if sibling is not None:
        rows = [row for row in rows if row.get("index") == sibling]
    if not rows:
        raise UsageError(f"scenario {scenario} has no sibling {sibling} in step {step}")
    if stop:
        _check_debugger(rows)
    loaded = load([str(folder.config)], is_run=True)
    played = asyncio.run(_play(loaded, rows, stop=stop, allow_writes=allow_writes))
    changed = _is_changed(folder, loaded)
    if as_json:
        row = {"scenario_id": scenario_of(rows), "env_code_changed": changed}
        say(json.dumps(row | {"siblings": [one.as_json() for one in played]}))
    else:
        _tell(played, scenario_of(rows), changed)
    if any(one.parting for one in played):
        raise typer.Exit(EXIT_FAILED)


def _check_debugger(rows: list[Row]) -> None:
    if len(rows) > 1:
        known = ", ".join(str(row.get("index")) for row in rows)
        raise UsageError(f"--break plays one episode; name its sibling: --sibling ({known})")
    if not sys.stdin.isatty() and "PYTHONBREAKPOINT" not in os.environ:
        raise UsageError("--break needs a terminal to type at, or PYTHONBREAKPOINT")


async def _play(
    loaded: LoadedExperiment, rows: list[Row], *, stop: bool, allow_writes: bool
) -> list[Replay]:
    from art_cli.inspection.replay import replay as play
    from art_cli.inspection.stopping import stopping
    from art_cli.rollout.env_class import env_of

    cfg, settings = loaded.experiment, loaded.env_settings
    env = env_of(cfg.env)
    key = "train" if rows[0]["split"] == "train" else "eval"
    if (who := getattr(cfg.env.opponents, key, "script")) != "script":
        name = who if isinstance(who, str) else getattr(who, "model", "") or who.checkpoint
        raise UsageError(
            f"the game was played against others (env.opponents.{key}: {name}), whose moves are "
            "not in its row: only one against the env's own script can be played again"
        )
    how = {"is_builtin": cfg.agent.use == "builtin", "allow_writes": allow_writes}
    if stop:
        one = await play(stopping(env), settings, rows[0], **how)
        if one.error and "BdbQuit" in one.error:
            raise Interrupted("ended in the debugger")
        return [one]
    played = []
    for row in rows:
        one = await play(env, settings, row, **how)
        if one.parting:
            again = await play(env, settings, row, **how)
            is_chance = (again.parting, again.reward) != (one.parting, one.reward)
            one = dataclasses.replace(one, is_chance=is_chance)
        played.append(one)
    return played


def _is_changed(run: RunDir, loaded: LoadedExperiment) -> bool | None:
    """Return whether the env's code changed since the run, or None if the run has no digest."""
    from art_cli.envs.digest import code_digest
    from art_cli.inspection.provenance import made_with
    from art_cli.rollout.env_class import env_of

    stored = made_with(run).get("env code", "unknown")
    if stored == "unknown":
        return None
    return code_digest(env_of(loaded.experiment.env)) != stored


def _tell(played: list[Replay], scenario: str, changed: bool | None) -> None:
    from art_cli.inspection.conversation import plain
    from art_cli.terminal.screen import Screen

    screen = Screen()
    screen.print(f"scenario {scenario}", style="bold")
    for one in played:
        who = f"sibling {one.index}: "
        if one.parting is None:
            end = f"reward {_number(one.reward)}" if one.error is None else "it fails as it did"
            screen.print(f"{who}as it was; {_answers(one.num_answers)}, {end}")
            continue
        screen.print(f"{who}differs, first in {one.parting.place}", style="red")
        screen.hang("  stored", plain(one.parting.stored, full=False), 10)
        screen.hang("  now", plain(one.parting.now, full=False), 10)
        rewards = f"{_number(one.stored_reward)} stored, {_number(one.reward)} now"
        screen.hang("  reward", plain(rewards, full=True), 10)
    differing = [one for one in played if one.parting]
    if not differing:
        return screen.print("The env answers as it did.")
    screen.print(f"{len(differing)} of {len(played)} differ. {_why(differing, changed)}")
    return None


def _why(differing: list[Replay], changed: bool | None) -> str:
    if any(one.is_chance for one in differing):
        return (
            "Played twice now, they differ from each other too: the env is not deterministic. "
            "All chance of an episode must come from self.rng, or scenario.seed."
        )
    if changed:
        return "The code of the env is another than the run's."
    if differing[0].is_chance is None:
        return "Without --break it is played twice, which tells chance from a change."
    same = " (its code is the run's)" if changed is False else ""
    return (
        f"Played twice now, they are alike{same}: its code, its data or its settings have changed "
        "since, or it looks at what each process has of its own: the clock, the order of a set, "
        "files, state that episodes share."
    )


def _answers(num: int) -> str:
    return "1 answer of the env" if num == 1 else f"{num} answers of the env"


def _number(value: Any) -> str:
    return "none" if value is None else f"{value:.3f}"
