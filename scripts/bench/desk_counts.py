"""Counts of what the desks' scenarios and tau2-bench's tasks hold: the last table of docs/desks.md.

`desks.py --counts` prints it. Of tau2-bench, a clone is read: nothing of it is kept here.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from art_cli.envs.tools import tools_of
from art_envs.service.desk import ServiceDesk
from art_envs.service.goal import COMMITMENTS, Goal, ever_wanted, minds

LEVEL = 4
# The writes of tau2, as marked in its tools, without the transfer.
WRITING = re.compile(r"^(cancel|modify|return|exchange|update|book|send)_")
# A user instruction that contains one of these counts as a changed mind.
CHANGES = re.compile(
    r"chang\w* (?:your|their) mind|(?:ask\w*|when) [^.]{0,40}confirm[^.]{0,60}"
    r"(?:only|instead|change|rethink)|suddenly decide",
    re.I,
)


def of_desk(env: type[ServiceDesk]) -> dict[str, str]:
    """Return the counts over all scenarios of level 4."""
    cfg = env.Config(level=LEVEL)  # type: ignore[arg-type]
    goals = [goal for split in env.goals(cfg).values() for goal in split]
    names = [name for name in tools_of(env) if name not in COMMITMENTS]
    scripts = [[s for s in g["script"] if not isinstance(s, str)] for g in goals]
    writes = [
        [s for s in script if env.is_write(s) and s["name"] not in ("transfer", "ask_customer")]
        for script in scripts
    ]
    told = [any(step["name"] == "tell" for step in script) for script in scripts]
    changing = [g for g in goals if _wants_a_change(g)]
    return {
        "tools": f"{len(names)} and {', '.join(COMMITMENTS)}",
        **_length(env.policy(cfg)),
        "something must be refused": _share(
            any(s["name"] == "refuse" for s in script) for script in scripts
        ),
        "wants that change when asked to confirm": f"{sum(bool(minds(g)) for g in changing)} of "
        f"{len(changing)} with a change",
        **_writes(writes),
        "a question and a write": _share(a and bool(b) for a, b in zip(told, writes, strict=True)),
        "words of the opening": _words(g["opening"] for g in goals),
    }


def _wants_a_change(goal: Goal) -> bool:
    return any(w["write"] and w["write"]["name"] != "transfer" for w in ever_wanted(goal))


def of_tau2(clone: Path, domain: str) -> dict[str, str]:
    """Return the same counts for a domain of tau2-bench, as far as its files allow."""
    folder = clone / "data" / "tau2" / "domains" / domain
    tools = (clone / "src" / "tau2" / "domains" / domain / "tools.py").read_text()
    names = ("main_policy.md", "tech_support_manual.md", "policy.md")
    policy = [(folder / name).read_text() for name in names if (folder / name).is_file()]
    out = {
        "tools": str(len(re.findall(r"^    @is_tool\(", tools, re.M))),
        **_length("".join(policy)),
    }
    if not (folder / "tasks.json").is_file():
        return out
    tasks = json.loads((folder / "tasks.json").read_text())
    rules = [task["evaluation_criteria"] for task in tasks]
    writes = [[a for a in r["actions"] or [] if WRITING.match(a["name"])] for r in rules]
    told = [bool(rule["communicate_info"]) for rule in rules]
    said = [task["user_scenario"]["instructions"] for task in tasks]
    texts = [" ".join(str(part) for part in each.values() if part) for each in said]
    changing = [text for text, made in zip(texts, writes, strict=True) if made]
    return out | {
        "wants that change when asked to confirm": f"{_num(map(CHANGES.search, texts))} of "
        f"{len(tasks)}, {_num(map(CHANGES.search, changing))} of {len(changing)} with a write",
        "doing nothing earns": _share(not a and not b for a, b in zip(told, writes, strict=True)),
        **_writes(writes),
        "a question and a write": _share(a and bool(b) for a, b in zip(told, writes, strict=True)),
        "words of the user's instruction": _words(texts),
    }


def _writes(tasks: Sequence[Sequence[Any]]) -> dict[str, str]:
    num = Counter(min(len(made), 3) for made in tasks)
    several = [len(w["arguments"]["item_ids"]) > 1 for made in tasks for w in made if _items(w)]
    return {
        "0, 1, 2, 3 or more writes": ", ".join(str(num[i]) for i in range(4))
        + f" of {len(tasks):,}",
        "several items in one change": _share(several) if several else "-",
        "several writes on one order or reservation": _share(map(_repeats, tasks)),
    }


def _items(write: Any) -> bool:
    return "item_ids" in write["arguments"]


def _repeats(writes: Sequence[Any]) -> bool:
    keys = ("order_id", "reservation_id")
    ids = [w["arguments"][key] for w in writes for key in keys if key in w["arguments"]]
    return len(set(ids)) < len(ids)


def _length(policy: str) -> dict[str, str]:
    return {"characters (words) of the policy": f"{len(policy):,} ({len(policy.split()):,})"}


def _words(texts: Iterable[str]) -> str:
    return str(round(statistics.fmean(len(text.split()) for text in texts)))


def _num(found: Iterable[Any]) -> int:
    return sum(map(bool, found))


def _share(found: Iterable[Any]) -> str:
    all_ = [bool(each) for each in found]
    return f"{sum(all_)} of {len(all_):,}"


def table(columns: dict[str, dict[str, str]]) -> str:
    """Return counts as a table in Markdown."""
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    lines = ["| | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for row in rows:
        cells = [column.get(row, "-") for column in columns.values()]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
