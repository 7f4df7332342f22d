"""`art show`: the episodes of a step of a run, and their rewards."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_cli.cli.inputs import AsJson
from art_cli.terminal.text import say

if TYPE_CHECKING:
    from art_cli.inspection.groups import Row, StepGroups
    from art_cli.runs.directory import RunDir
    from art_cli.terminal.screen import Screen

INDENT = 12  # columns of a speaker's name
MOST_REWARDS = 3  # distinct rewards that a line of the table lists


def show(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    step: Annotated[int | None, typer.Argument(help="A step; default: the newest.")] = None,
    group: Annotated[
        str | None, typer.Argument(help="Number of a group, or its scenario; default: a list.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, val or test.")] = "train",
    full: Annotated[
        bool, typer.Option("--full", help="Shorten nothing: thinking, results, side talks.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what was played in a step: its groups in numbers, or the siblings of one with all that
    was said, the best first, and what the judge said of them.

    Example:  art show runs/default/quickstart 40 3
    """
    from art_cli.inspection.groups import open_step, summary
    from art_cli.runs.directory import RunDir
    from art_cli.terminal.screen import Screen
    from art_cli.view.episodes import damaged_judgements

    folder = RunDir.open(run)
    found = open_step(folder, step, split)
    for line in (*found.damage.splitlines(), *damaged_judgements(folder)):
        say(f"warning: {line}", file=sys.stderr)
    if group is None:
        rows = [summary(number, rows) for number, rows in found.groups.items()]
        return say(json.dumps(rows)) if as_json else _list_groups(run, found, rows)
    number = found.find(group)
    chosen = sorted(found.groups[number], key=lambda row: -(row.get("reward") or 0.0))
    if as_json:
        return say(json.dumps(chosen))
    return _show_group(Screen(), folder, found, number, chosen, full=full)


def _list_groups(run: Path, found: StepGroups, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from art_cli.terminal.screen import Screen

    names = ["group", "scenario", "mean", "rewards", "spread", "failed"]
    if not any(row["failed"] for row in rows):
        names.remove("failed")
    if all(row["spread"] is None for row in rows):  # held-out groups have one episode each
        names = [name for name in names if name not in ("rewards", "spread")]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("scenario", "rewards") else "right")
    for row in rows:
        cells = {
            "group": str(row["group"]),
            "scenario": row["scenario_id"],
            "mean": _number(row["reward"]),
            "rewards": _counted(row["rewards"]),
            "spread": _number(row["spread"]),
            "failed": str(row["failed"] or ""),
        }
        table.add_row(*(cells[name] for name in names))
    screen = Screen()
    screen.print(f"step {found.step}, {found.split}: {len(rows)} group{'s' * (len(rows) != 1)}")
    screen.show(table)
    most = max(rows, key=lambda row: row["spread"] or 0.0)
    flat = sum(row["spread"] == 0 for row in rows)
    if flat:
        screen.print(f"{flat} of {len(rows)} groups teach nothing: their rewards are all equal.")
    which = "the widest" if most["spread"] else "one of them"
    split = "" if found.split == "train" else f" --split {found.split}"
    path = shlex.quote(str(run))
    say(f"Read {which}:  art show {path} {found.step} {most['group']}{split}")


def _counted(rewards: list[float]) -> str:
    """Return rewards in short form: `0.10 x5, 1.00 x3`, or the lowest and the highest."""
    different = sorted({f"{reward:.2f}" for reward in rewards}, key=float)
    if len(different) > MOST_REWARDS:
        return f"{different[0]} to {different[-1]}"
    counts = [f"{reward:.2f}" for reward in rewards]
    return ", ".join(f"{text} x{counts.count(text)}" for text in different)


def _number(value: Any, form: str = ".2f") -> str:
    return "-" if value is None else f"{value:{form}}"


def _show_group(
    screen: Screen, run: RunDir, found: StepGroups, number: int, rows: list[Row], *, full: bool
) -> None:
    from art_cli.inspection.conversation import messages_of, plain, turn_advantages
    from art_cli.inspection.groups import scenario_of
    from art_cli.view.episode_html import same_opening

    scenario, of = scenario_of(rows), len(found.groups)
    title = f"step {found.step}, {found.split} group {number} of {of}: scenario {scenario}"
    screen.print(title, style="bold")
    talks = [messages_of(row) for row in rows]
    own = (n for row in rows for n, v in enumerate(turn_advantages(row)) if v is not None)
    shared = min(same_opening(talks), *own, len(talks[0]))  # what has an advantage is one's own
    _show_talk(screen, talks[0][:shared], full=full)
    judged = _judged_again(run, found, number)
    told: dict[str, Any] = {}  # transcript -> the sibling that shows it
    for alike in _alike(rows, shared, judged):
        row, index = alike[0], alike[0].get("index")
        screen.print()
        screen.print(_heading(alike), style="bold")
        played = json.dumps([messages_of(row)[shared:], row.get("turn_advantages")])
        if told.setdefault(played, index) != index and not full:
            screen.hang("", _dim(f"the same, word for word, as sibling {told[played]}"), INDENT)
        else:
            by_turn = turn_advantages(row)[shared:]
            _show_talk(screen, messages_of(row)[shared:], full=full, by_turn=by_turn)
        _show_rest(screen, row, full=full)
        for judge, words in judged.get(index, []):
            screen.hang(judge, plain(words, full=full), max(INDENT, len(judge) + 1), "yellow")


def _show_talk(
    screen: Screen, talk: list[Any], *, full: bool, by_turn: Sequence[float | None] = ()
) -> None:
    """Print messages, and color the turns that have their own advantage."""
    from rich.text import Text

    from art_cli.inspection.conversation import lines_of

    for message, value in itertools.zip_longest(talk, by_turn[: len(talk)]):
        style = "dim" if not value else "green" if value > 0 else "red"
        for label, text in lines_of(message, full=full):
            screen.hang(label, text, INDENT, style)
        if value is not None:
            screen.hang("", Text(f"advantage {value:+.2f}", style), INDENT)


def _alike(rows: list[Row], shared: int, judged: dict[Any, list[Any]]) -> list[list[Row]]:
    """Group siblings that have the same transcript, reward and judgement."""
    from art_cli.inspection.conversation import messages_of

    found: dict[str, list[Row]] = {}
    for row in rows:
        told = [row.get("logs"), row.get("error"), row.get("crash"), row.get("side_conversations")]
        told.append(row.get("turn_advantages"))
        about = [_heading([row | {"index": 0}]), judged.get(row.get("index"))]
        key = json.dumps([messages_of(row)[shared:], told, about], default=str)
        found.setdefault(key, []).append(row)
    return list(found.values())


def _dim(text: str) -> Any:
    from rich.text import Text

    return Text(text, "dim")


def _heading(alike: list[Row]) -> str:
    row = alike[0]
    indices = ", ".join(str(each.get("index", "?")) for each in alike)
    who = f"sibling{'s' if len(alike) > 1 else ''} {indices}"
    from art_cli.runs.trajectories import reward_parts_of

    parts = [f"{who}: reward {_number(row.get('reward'))}", *_parts(reward_parts_of(row))]
    if row.get("advantage") is not None:
        parts.append(f"advantage {_number(row['advantage'], '+.2f')}")
    parts.append(f"{row.get('num_turns', '?')} turns, {row.get('num_sampled', '?')} tokens")
    if (ended := row.get("stop_reason", "?")) != "env":
        parts.append(f"ended by {ended}")
    return ", ".join(parts) + (", cut off" if row.get("truncated") else "")


def _parts(made_of: dict[str, Any]) -> list[str]:
    """Return the parts of a reward, or nothing if the env's score is its only part."""
    names = [name for name in ("agent", "judge") if name in made_of]
    found = [f"{name} {_number(made_of[name])}" for name in names]
    if made_of.get("is_gated") and "judge" in made_of:
        found[-1] += " (gated: does not count)"
    if "win" in made_of:
        found.append({1.0: "wins", 0.0: "loses"}.get(made_of["win"], "ties"))
        found[-1] += " against the untrained policy"
    if made_of.get("cost"):
        found.append(f"invalid actions -{_number(made_of['cost'])}")
    return [f"env {_number(made_of.get('env'))}", *found] if found else []


def _show_rest(screen: Screen, row: Row, *, full: bool) -> None:
    """Print the rest of a trajectory: logs, error, the env's facts, other conversations."""
    from art_cli.inspection.conversation import plain
    from art_cli.runs.trajectories import reward_parts_of

    words = reward_parts_of(row).get("explanation")
    for label, text in (("judge", words), *(("log", line) for line in row.get("logs") or [])):
        if text:
            screen.hang(label, plain(str(text), full=full), INDENT, "yellow")
    for label in ("crash", "error"):
        if text := row.get(label):
            whole = f"{text}\n{row.get('traceback', '')}" if label == "error" else str(text)
            text = whole.rstrip() if full else str(text).partition("\n")[0]
            name = "crashed" if label == "crash" else "failed"
            screen.hang(name, plain(text, full=full, style="red"), INDENT, "red")
    if full and row.get("judge_context"):
        screen.hang("env knows", plain(str(row["judge_context"]), full=True), INDENT)
    others = row.get("side_conversations") or []
    if others and not full:
        screen.hang("", _dim(f"and {len(others)} conversations beside it: --full"), INDENT)
    for talk in others if full else []:
        screen.print("  beside it:")
        _show_talk(screen, talk, full=True)


def _judged_again(run: RunDir, found: StepGroups, number: int) -> dict[Any, list[Any]]:
    """Return the judgements of `art judge rescore` for each sibling, by its index."""
    from art_cli.inspection.groups import scenario_of
    from art_cli.runs.trajectories import can_be_judged
    from art_cli.view.episodes import judgements

    rows = found.groups[number]
    heard = judgements(run, found.step, scenario_of(rows)) if found.split == "train" else []
    out: dict[Any, list[Any]] = {}
    for said in heard:
        told = zip(filter(can_be_judged, rows), said["scores"], said["explanations"], strict=False)
        for row, score, words in told:
            out.setdefault(row.get("index"), []).append(
                (said["judge"], f"{_number(score)}  {words}")
            )
    return out
