"""A few trajectories of a step for a person to read, as rows of a table."""

from __future__ import annotations

from typing import Any

from art_cli.runs.trackers.shorten import shortened
from art_cli.runs.trajectories import grouped, reward_parts_of, reward_width

NUM_SAMPLES = 8  # per step and split
COLUMNS = ("step", "scenario", "reward", "ended by", "conversation", "judge")


def held_out(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the first rows of an evaluation: it has the same scenarios in each step."""
    return [_cells(row) for row in rows[:NUM_SAMPLES]]


def siblings(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the group with the widest reward range, best first; of a large one, both ends."""
    group = max(grouped(rows), key=reward_width, default=[])
    ranked = sorted(group, key=lambda row: (row["reward"] is None, -(row["reward"] or 0.0)))
    if len(ranked) > NUM_SAMPLES:
        half = NUM_SAMPLES // 2
        ranked = [*ranked[:half], *ranked[-half:]]
    return [_cells(row) for row in ranked]


def _cells(row: dict[str, Any]) -> list[Any]:
    """Return the cells of a row, in the order of COLUMNS."""
    ended = row["stop_reason"]
    if row["error"]:
        ended = f"{ended}: {row['error'].partition(chr(10))[0]}"
    judge = reward_parts_of(row).get("explanation", "")
    text = conversation(row["messages"])
    return [row["step"], row["scenario_id"], row["reward"], ended, text, judge]


def conversation(messages: list[dict[str, Any]]) -> str:
    """Return a conversation as text with roles, without the middle of a very long one."""
    return shortened("\n\n".join(f"[{m['role']}] {m.get('content') or ''}" for m in messages))
