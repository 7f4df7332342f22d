"""Findings on the two splits: scored differently, or with the answer in the prompt."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

from art_cli.why.evidence import (
    Evidence,
    Row,
    conduct_of,
    opening_of,
    place,
    value_at,
    values_of,
)
from art_cli.why.finding import Finding
from art_cli.why.kinds import ANSWERS
from art_cli.why.progress import other_kind

KINDS = 10  # values of a key in the data: one that has more of them is no kind
MOST_KEYS = 12  # keys of which pairs are looked at
# Scenarios of a kind with one conduct. If the splits were scored alike, 20 would all earn one
# reward and 5 all another at most 4 times in a million (0.8^20 0.2^5), in each kind that is tried.
ENOUGH_TRAIN, ENOUGH_HELD = 20, 5
APART = 0.1  # of the span of the env's own scores
NAMES = {*ANSWERS, "solution", "secret"}
FEW = 8  # scenarios with an answer in their data
HALF = 0.5

Kind = tuple[tuple[str, str], ...]  # paths in the scenarios' data, and the value at each
Cell = tuple[Kind, tuple[object, ...]]  # a kind, and what was done


def held_out_paid_otherwise(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where held-out episodes earn what no train episode earns for the same play.

    Compares episodes of one kind of scenario with one conduct: the tools in their order, and the
    last word. A kind is one value in the scenarios' data, or two. Compares the env's own score,
    which no judge changes. Silent where the splits hold other kinds.
    """
    train = [row for row in run.rows if _is_comparable(row)]
    held = [row for rows in run.held_out.values() for row in rows if _is_comparable(row)]
    if not (train and held) or any(other_kind(run)):
        return
    earned = [_own_score(row) for row in train]
    near = APART * (max(earned) - min(earned))
    found = values_of(row["scenario"] for row in train)
    paths = [p for p, values in sorted(found.items()) if 1 < len(values) <= KINDS][:MOST_KEYS]
    worst: tuple[float, Cell, list[Row], list[Row]] | None = None
    for size in (1, 2):
        ours, theirs = (_cells(rows, paths, size) for rows in (train, held))
        for cell in ours.keys() & theirs.keys():
            a, b = ours[cell], theirs[cell]
            if _num_scenarios(a) < ENOUGH_TRAIN or _num_scenarios(b) < ENOUGH_HELD:
                continue
            paid, unpaid = ([_own_score(row) for row in rows] for rows in (a, b))
            if min(paid) > max(unpaid) + near or max(paid) < min(unpaid) - near:
                weight = abs(statistics.fmean(paid) - statistics.fmean(unpaid)) * len(b)
                # Of equals, the first by name: the order of a set is no order.
                if worst is None or (weight, repr(cell)) > (worst[0], repr(worst[1])):
                    worst = weight, cell, a, b
    if worst is not None:
        yield _otherwise(*worst[1:])


def _otherwise(cell: Cell, train: list[Row], held: list[Row]) -> Finding:
    kind = " and ".join(f"{path} {value}" for path, value in cell[0])
    tools, word = [str(part) for part in cell[1][:-1]], cell[1][-1]
    did = ", then ".join([*tools, f'"{word}"'])
    paid, other = (statistics.fmean(map(_own_score, rows)) for rows in (train, held))
    return Finding(
        name="held_out_paid_otherwise",
        weight="serious",
        title="The same play is paid otherwise on held-out scenarios",
        evidence=f"with {kind}, {len(train)} train episodes with the play {did} earned {paid:.2f}, "
        f"and {len(held)} held-out ones with the same play {other:.2f}; no reward of the one is "
        "near any of the other",
        reason="The held-out scenarios are scored by other rules, or built otherwise: their reward "
        "does not measure what is trained.",
        change="the env's score() and scenarios(): play this train and this held-out scenario by "
        "hand",
        certainty=0.95,
        example=place(held[-1]),
    )


def _is_comparable(row: Row) -> bool:
    return bool(row["scenario"] and row["messages"] and not row["truncated"]) and (
        row["reward"] is not None and _own_part(row) is not None
    )


def _own_part(row: Row) -> float | None:
    """Return the score of the env, or of an agent that reports one; None where neither is known."""
    parts = row.get("reward_parts") or {}
    return parts.get("env") if parts.get("env") is not None else parts.get("agent")


def _own_score(row: Row) -> float:
    score = _own_part(row)
    assert score is not None  # of comparable rows alone
    return score


def _conduct(row: Row) -> tuple[object, ...]:
    """Return the tools in their order, with `(refused)` behind an error, and the last word."""
    calls = [s for s in row["steps"] if s["tool"] is not None]
    words = (conduct_of(row) or ("",))[-1].casefold().split()
    return (
        *(s["tool"] + " (refused)" * bool(s["is_error"]) for s in calls),
        words[-1] if words else "",
    )


def _cells(rows: list[Row], paths: list[str], size: int) -> dict[Cell, list[Row]]:
    cells: dict[Cell, list[Row]] = defaultdict(list)
    for row in rows:
        values = [(path, value) for path in paths if (value := value_at(row["scenario"], path))]
        done = _conduct(row)
        for kind in combinations(values, size):
            cells[kind, done].append(row)
    return cells


def _num_scenarios(rows: list[Row]) -> int:
    return len({row["scenario_id"] for row in rows})


def leaked_answer(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where prompts hold what their scenarios' data calls the answer.

    Silent where prompts hold the answers of other scenarios half as often: they list the options.
    Serious where the two splits differ. Elsewhere the task may be to find the answer there.
    """
    train = _with_answer(run.rows)
    held = _with_answer(row for rows in run.held_out.values() for row in rows)
    for part in (_last_message, _whole_opening):
        shares = [_share(split, part) for split in (train, held)]
        first, share = (train, shares[0]) if shares[0] >= shares[1] else (held, shares[1])
        by_chance = _share_of_others(first, part)
        if len(first) < FEW or share <= HALF or by_chance is None or by_chance >= HALF * share:
            continue
        differ = bool(train and held) and abs(shares[0] - shares[1]) > HALF
        also = f", and in {shares[1]:.0%} of the held-out ones" if held else ""
        yield Finding(
            name="leaked_answer",
            weight="serious" if differ else "notable",
            title="The answer stands in the prompt" + " of one split" * differ,
            evidence=f"in {shares[0]:.0%} of {len(train)} train scenarios the opening has the "
            f"answer word for word{also}",
            reason="The policy can copy it there, and has to find it elsewhere."
            if differ
            else "The policy learns to copy it. That is right only where the task is to find it "
            "in the prompt.",
            change="the env's start(), or the column that env.args reads as the question",
            certainty=0.8,
            example=place(next(row for row, own in first if _holds(part(row), own))),
        )
        return


def _with_answer(rows: Iterable[Row]) -> list[tuple[Row, set[str]]]:
    """Return one trajectory of each scenario that has answers in its data, and these."""
    each = {row["scenario_id"]: row for row in rows}.values()
    return [(row, found) for row in each if (found := _answers(row["scenario"] or {}))]


def _share(scenarios: list[tuple[Row, set[str]]], part: Callable[[Row], str]) -> float:
    """Return the share of scenarios whose prompt holds their own answer."""
    return sum(_holds(part(row), own) for row, own in scenarios) / max(1, len(scenarios))


def _last_message(row: Row) -> str:
    return (opening_of(row) or ("",))[-1]


def _whole_opening(row: Row) -> str:
    return "\n".join(opening_of(row))


def _holds(text: str, answers: set[str]) -> bool:
    return any(answer in text.casefold() for answer in answers)


def _share_of_others(
    scenarios: list[tuple[Row, set[str]]], part: Callable[[Row], str]
) -> float | None:
    """Return in which share of scenarios the prompt holds another answer, that of a later scenario.

    None where all have one answer.
    """
    held: list[bool] = []
    for i, (row, own) in enumerate(scenarios):
        later = (scenarios[(i + n) % len(scenarios)][1] for n in range(1, len(scenarios)))
        if other := next((found for found in later if not found & own), None):
            held.append(_holds(part(row), other))
    return sum(held) / len(held) if held else None


def _answers(data: dict[str, Any]) -> set[str]:
    """Return what the data calls an answer, or each where it is a list."""
    values = [v for k, v in data.items() if k.lower() in NAMES]
    each = [one for v in values for one in (v if isinstance(v, list) else [v])]
    return {text for one in each if len(text := str(one).strip().casefold()) >= 2}


RULES = (held_out_paid_otherwise, leaked_answer)
