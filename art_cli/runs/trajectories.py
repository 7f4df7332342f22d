"""Trajectories as rows of a file: writing, reading, and functions of such rows."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from art_cli.errors import ArtError
from art_cli.keys import mask_keys_in
from art_cli.runs.stored_fields import check_episode
from art_cli.system.files import Damage, atomic_write, json_line, lines_of, open_file, row_of
from art_cli.terminal.text import masked
from art_cli.types import Sequence, Split, Trajectory, TrajectoryGroup

MOST_EPISODES = 50_000  # per step and split


def write_rows(path: Path, step: int, split: Split, groups: list[TrajectoryGroup]) -> None:
    """Write one compressed line per trajectory. Equal trajectories give equal bytes.

    `pandas.read_json(path, lines=True)` and duckdb's `read_json` can read the file.
    """
    lines = [
        json_line(_row(step, split, num_group, num_sibling, trajectory))
        for num_group, group in enumerate(groups)
        for num_sibling, trajectory in enumerate(group.trajectories)
    ]
    atomic_write(path, gzip.compress("".join(lines).encode(), compresslevel=6, mtime=0))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of `write_rows`. Raises ArtError, with file:line, on damage."""
    rows, damage = read_good_rows(path)
    if damage:
        raise ArtError(damage)
    return rows


def read_good_rows(path: Path, *, tokens: bool = True) -> tuple[list[dict[str, Any]], str]:
    """Return the readable rows, and the damage as text with one line each: "" if there is none.

    Without `tokens`, the sequences in a row are empty, which takes a third of the time.
    """
    rows: list[dict[str, Any]] = []
    damage, number = Damage(path), 0
    parse = json.loads if tokens else _without_tokens
    try:
        with open_file(path) as packed, gzip.open(packed) as lines:
            for number, line in lines_of(lines, damage, most=MOST_EPISODES):
                if (row := row_of(line, number, damage, check_episode, parse)) is not None:
                    rows.append(row)
    except (OSError, EOFError, zlib.error) as e:
        damage.add(number + 1, f"is damaged ({e}); the lines before it are good")
    return rows, "\n".join(damage.lines)


def _without_tokens(line: bytes) -> Any:
    """Parse a line with empty sequences, if they are its last key, as `_row` writes it."""
    begin, _, rest = line.rpartition(b'"sequences": [')
    if rest.startswith((b"{", b"]}")) and b'}], "' not in rest:
        with suppress(ValueError):  # another key had this name
            row = json.loads(begin + b'"sequences": []}')
            return row | {"sequences": [{}] * rest.count(b'"ids": ')}
    return json.loads(line)


def grouped(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the rows of a trajectory file, grouped."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return [groups[n] for n in sorted(groups)]


def reward_width(group: list[dict[str, Any]]) -> float:
    """Return the gap between a group's best and worst reward."""
    rewards = [row["reward"] for row in group if row["reward"] is not None]
    return max(rewards) - min(rewards) if rewards else 0.0


def can_be_judged(row: dict[str, Any]) -> bool:
    """Return whether an episode was played to its end, so that a judge can compare it."""
    return row.get("stop_reason") not in ("error", "timeout")


def reward_parts_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a reward that have a value, with the names in RewardParts."""
    return row.get("reward_parts") or {}  # damaged rows may lack it


def _row(step: int, split: Split, group: int, index: int, t: Trajectory) -> dict[str, Any]:
    """Return a trajectory as a flat object, with masked keys in its texts.

    Durations are excluded, so that equal runs give equal bytes.
    """
    # Token ids are unchanged, even if a key that the model read or wrote is in them.
    return mask_keys_in(_texts(step, split, group, index, t)) | {
        "sequences": [_sequence(s, bool(t.turn_advantages)) for s in t.sequences]
    }


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value: 0.0 is a value; None, False and "" are not."""
    return {k: v for k, v in fields.items() if v is not None and v is not False and v != ""}


def _sequence(s: Sequence, has_turns: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"ids": s.ids, "mask": s.mask, "engine_logprobs": s.engine_logprobs}
    if has_turns:
        found["begins"] = s.begins  # the index at which each turn begins
    if s.constrained:
        found["constrained"] = mask_keys_in([asdict(c) for c in s.constrained])
    return found


def _texts(step: int, split: Split, group: int, index: int, t: Trajectory) -> dict[str, Any]:
    return {
        "step": step,
        "split": split,
        "group": group,
        "index": index,  # within the group
        "scenario_id": t.scenario.id,
        "seed": t.scenario.seed,
        "scenario": t.scenario.data,
        "reward": t.reward,
        "reward_parts": _given(asdict(t.reward_parts)),
        "advantage": t.advantage,  # None: not trained on
        **({"turn_advantages": t.turn_advantages} if t.turn_advantages else {}),
        "metrics": t.metrics,
        "stop_reason": t.stop_reason,
        "truncated": t.truncated,
        "error": t.error and masked(t.error),
        **_given({"traceback": masked(t.traceback), "crash": t.crash and masked(t.crash)}),
        "judge_context": t.judge_context,
        "logs": [masked(line) for line in t.logs],
        "num_turns": t.num_turns,
        "num_calls": t.num_calls,
        "num_sampled": t.num_sampled,
        "policy_versions": t.policy_versions,
        "steps": [asdict(step) for step in t.steps],
        "messages": t.messages,
        "side_conversations": t.side_conversations,
    }
