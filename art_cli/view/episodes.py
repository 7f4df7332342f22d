"""The trajectories of a run: a short row of each for lists and maps, and complete groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_cli.runs.directory import RunDir
from art_cli.runs.stored_fields import check_judgement
from art_cli.runs.trajectories import read_good_rows, reward_parts_of
from art_cli.system.files import read_lines
from art_cli.system.untrusted import is_number
from art_cli.terminal.text import masked
from art_cli.types import tags_of
from art_cli.view.pieces import Pieces

FILE = re.compile(r"(\w+)-(\d+)\.jsonl\.gz")
COLUMNS = (
    *("group", "index", "scenario", "reward", "advantage", "stop", "truncated", "failed", "turns"),
    *("tokens", "sequences", "errors", "tools", "first", "score", "last", "kind"),
)
LONGEST = 80  # characters of a first action or last message in a list


@dataclass(frozen=True, slots=True)
class StepFile:
    """One file of trajectories."""

    split: str
    step: int
    path: Path
    stamp: tuple[int, int]  # changes when the file does


@dataclass(slots=True)
class StepEpisodes:
    """The content of a file of trajectories."""

    rows: list[dict[str, Any]]
    damage: str


def step_files(run: RunDir) -> list[StepFile]:
    """Return the files of trajectories, evaluations and training, by step."""
    found = []
    for path in run.trajectories.glob("*.jsonl.gz"):
        name = FILE.fullmatch(path.name)
        try:
            stat = path.stat()
        except OSError:  # a resume has deleted the file
            continue
        if name:
            stamp = stat.st_mtime_ns, stat.st_size
            found.append(StepFile(name[1], int(name[2]), path, stamp))
    return sorted(found, key=lambda f: (f.step, f.split))


def read_step(file: StepFile, *, tokens: bool = True) -> StepEpisodes:
    """Read the valid rows of a file, ordered by group; see `read_good_rows`."""
    rows, damage = read_good_rows(file.path, tokens=tokens)
    rows.sort(key=lambda row: (group_of(row), _int(row.get("index"))))
    return StepEpisodes(rows, damage)


def group_of(row: dict[str, Any]) -> int:
    """Return the number of a row's group, or 0 if it has none."""
    return _int(row.get("group"))


def index_part(file: StepFile, found: StepEpisodes) -> dict[str, Any]:
    """Return one short row per trajectory, as columns."""
    rows = [_index_row(row) for row in found.rows]
    return {
        "split": file.split,
        "step": file.step,
        "damage": found.damage,
        "columns": {name: [row[n] for row in rows] for n, name in enumerate(COLUMNS)},
    }


def _index_row(row: dict[str, Any]) -> tuple[Any, ...]:
    steps = [s for s in _list(row.get("steps")) if isinstance(s, dict)]
    tools = [str(s["tool"]) or "(unreadable)" for s in steps if s.get("tool") is not None]
    sequences = _list(row.get("sequences"))
    said = [str(s.get("said")) for s in steps if s.get("said")]
    return (
        group_of(row),
        _int(row.get("index")),
        str(row.get("scenario_id", "?")),
        _rounded(row.get("reward")),
        _rounded(row.get("advantage")),
        str(row.get("stop_reason", "?")),
        int(bool(row.get("truncated"))),
        int(row.get("reward") is None and bool(row.get("error"))),
        _int(row.get("num_turns")),
        _int(row.get("num_sampled")),
        len(sequences),
        sum(bool(s.get("is_error")) for s in steps),
        tools,
        _first_action(steps),
        _rounded(reward_parts_of(row).get("judge")),
        said[-1][:LONGEST] if said else "",
        _kind(row.get("scenario")),
    )


def _kind(data: Any) -> str:
    tags = tags_of(data) if isinstance(data, dict) else {}
    return ", ".join(f"{tag} {value}" for tag, value in tags.items())


def _first_action(steps: list[dict[str, Any]]) -> str:
    if not steps:
        return "(nothing)"
    first = steps[0]
    if first.get("tool") is None:
        return "says: " + str(first.get("said", ""))[:40]
    return str(first["tool"]) or "(unreadable call)"


def group_detail(
    run: RunDir, file: StepFile, found: StepEpisodes, group: int, pieces: Pieces
) -> dict[str, Any]:
    """Return a complete group: conversations, rewards, the judge's explanations, tokens."""
    mine = [row for row in found.rows if group_of(row) == group]
    episodes = [_episode(row) for row in mine]
    ids = {i for episode in episodes for s in episode["sequences"] for i in s["ids"]}
    scenario = str(mine[0].get("scenario_id", "?")) if mine else "?"
    return {
        "split": file.split,
        "step": file.step,
        "group": group,
        "episodes": episodes,
        "pieces": pieces.of(ids),
        "judgements": judgements(run, file.step, scenario) if file.split == "train" else [],
    }


def _episode(row: dict[str, Any]) -> dict[str, Any]:
    kept = ("index", "scenario_id", "seed", "scenario", "reward", "reward_parts", "metrics")
    kept += ("stop_reason", "truncated", "error", "traceback", "crash", "judge_context", "logs")
    kept += ("num_turns", "num_calls")
    kept += ("num_sampled", "policy_versions", "steps", "messages", "side_conversations")
    shown = {name: row.get(name) for name in kept}
    shown["seed"] = str(row.get("seed"))  # JavaScript would round the number
    advantage = row.get("advantage")
    shown["advantage"] = advantage if is_number(advantage) else None
    return shown | {"sequences": _sequences(row)}


def _sequences(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the valid sequences, with logprobs rounded to visible precision.

    If turns have advantages of their own, `turns` has the start and the advantage of each.
    """
    found = []
    by_turn = filter(is_number, _list(row.get("turn_advantages")))
    for s in _list(row.get("sequences")):
        if not isinstance(s, dict):
            continue
        turns = list(zip(_list(s.get("begins")), by_turn, strict=False))
        ids, mask = _list(s.get("ids")), _list(s.get("mask"))
        if ids and len(ids) == len(mask):
            logprobs = _list(s.get("engine_logprobs"))
            # Half of a page's time is spent here, so only `round` is called per token.
            rounded = [
                round(x, 3) if m and type(x) is float and -1e9 < x <= 0 else 0
                for x, m in zip(logprobs, mask, strict=False)
            ]
            whole = [i if type(i) is int else -1 for i in ids]
            found.append({"ids": whole, "mask": mask, "logprobs": rounded, "turns": turns})
    return found


def judgements(run: RunDir, step: int, scenario: str) -> list[dict[str, Any]]:
    """Return other judges' scores of a group, from `art judge rescore`."""
    return [
        {
            "judge": path.stem,
            "scores": row.get("scores", []),
            "explanations": row.get("explanations", []),
        }
        for path in judgement_files(run)
        for row in read_lines(path, check_judgement)[0]
        if row.get("step") == step and row.get("scenario_id") == scenario
    ]


def damaged_judgements(run: RunDir) -> list[str]:
    """Return messages about unreadable lines in these files."""
    return [line for path in judgement_files(run) for line in read_lines(path, check_judgement)[1]]


def judgement_files(run: RunDir) -> list[Path]:
    """Return the files that `art judge rescore` wrote."""
    return sorted((run.root / "judgements").glob("*.jsonl"))


def texts_of(row: dict[str, Any]) -> str:
    """Return all text of a trajectory in lower case, for a search."""
    parts = [str(row.get("scenario_id", "")), *map(str, _list(row.get("logs")))]
    parts.append(str(reward_parts_of(row).get("explanation", "")))
    for talk in (row.get("messages"), *_list(row.get("side_conversations"))):
        parts += [str(m.get("content")) for m in _list(talk) if isinstance(m, dict)]
    parts += [str(row.get(name) or "") for name in ("error", "traceback", "crash")]
    return masked("\n".join(parts)).lower()


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _int(value: Any) -> int:
    return int(value) if is_number(value) else 0


def _rounded(value: Any) -> float | None:
    return round(value, 4) if is_number(value) else None
