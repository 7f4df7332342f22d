"""Findings on kinds of scenarios: never solved, one answer for most, or solved by chance."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from art_cli.evaluation.statistics import Estimate
from art_cli.why.evidence import (
    Evidence,
    Row,
    conduct_of,
    estimate,
    place,
    reward_scale,
    value_at,
    values_of,
)
from art_cli.why.finding import Finding
from art_cli.why.success import metric_of_success

KINDS = 10  # limit of values of a key in the data: a key with more of them does not define kinds
MOST_KEYS = 12  # limit of keys that are combined into pairs
EPISODES, SCENARIOS = 60, 10  # of a kind, enough to conclude that it never succeeds
OFTEN = 0.3  # success rate of the other kinds
ANSWERS = ("target", "targets", "answer", "answers", "label", "labels", "expected", "gold")
ENOUGH = 32  # scenarios
ONE = 0.7  # of the answers, or of the targets, are one: chance alone then meets most
MAJORITY = 0.8  # of the scenarios have one answer
CHANCE = 0.05  # Cohen's kappa: agreement beyond that of chance; healthy runs had 0.2 and more


def kind_never_succeeds(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if no episode of one kind of scenarios ever succeeds.

    Scenarios of a kind share one value in their data, or two. There is no finding if the other
    kinds hardly succeed either.
    """
    rows = [row for row in run.rows if row["reward"] is not None and row["scenario"]]
    name = metric_of_success(rows)
    top = max((row["reward"] for row in rows), default=0.0) - 0.1 * reward_scale(run)
    won = {id(r): bool(r["metrics"][name]) if name else r["reward"] >= top for r in rows}
    num_won = sum(won.values())
    found = values_of(row["scenario"] for row in rows)
    paths = [p for p, values in sorted(found.items()) if 1 < len(values) <= KINDS][:MOST_KEYS]
    for size in (1, 2):
        cells: dict[tuple[tuple[str, str], ...], list[Row]] = defaultdict(list)
        for row in rows:
            values = [(path, value_at(row["scenario"], path)) for path in paths]
            for kind in combinations(values, size):
                cells[kind].append(row)
        never = [
            kind
            for kind, of in cells.items()
            if len(of) >= EPISODES
            and all(value for _, value in kind)  # or it is what has no such key
            and len({row["scenario_id"] for row in of}) >= SCENARIOS
            and num_won >= OFTEN * (len(rows) - len(of))
            and not any(won[id(row)] for row in of)
        ]
        if never:
            kind = max(never, key=lambda k: len(cells[k]))
            yield _never(kind, cells[kind], rows, num_won)
            return


def _never(
    kind: tuple[tuple[str, str], ...], of: list[Row], rows: list[Row], num_won: int
) -> Finding:
    what = " and ".join(f"{path} {value}" for path, value in kind)
    ids = {id(row) for row in of}
    calls, elsewhere = (
        Counter(t for row in part for t in {s["tool"] for s in row["steps"] if _accepted(s)})
        for part in (of, [row for row in rows if id(row) not in ids])
    )
    # The tool that is called far more often in this kind than in others.
    tool = max(
        calls,
        key=lambda t: calls[t] / len(of) - elsewhere[t] / max(1, len(rows) - len(of)),
        default="",
    )
    also = f"; {calls[tool]} of them called {tool}, and it was accepted" if tool else ""
    rest = num_won / max(1, len(rows) - len(of))
    return Finding(
        name="kind_never_succeeds",
        weight="notable",
        title=f"No episode with {what} succeeds",
        evidence=f"0 of {len(of)}, in {len({r['scenario_id'] for r in of})} scenarios, and "
        f"{rest:.0%} of the others{also}",
        reason="The policy has not found out how, or it cannot be done: a tool that does something "
        "else than its name says, or a score that expects something else.",
        change="the env: play such a scenario by hand"
        + (f", with {tool}, and see what it does" if tool else ""),
        certainty=0.75,
        example=place(max(of, key=lambda row: row["reward"])),
    )


def _accepted(step: dict[str, object]) -> bool:
    return bool(step["tool"]) and not step["is_error"]


def one_answer(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if most scenarios have the same answer in their data."""
    train = {row["scenario_id"]: row["scenario"] or {} for row in run.rows}
    held = {r["scenario_id"]: r["scenario"] or {} for rows in run.held_out.values() for r in rows}
    for name in ANSWERS:
        counts = Counter(value_at(data, name) for data in train.values() if name in data)
        if sum(counts.values()) < ENOUGH:
            continue
        value, num = counts.most_common(1)[0]
        share = num / sum(counts.values())
        if share > MAJORITY:
            same = sum(value_at(data, name) == value for data in held.values())
            also = f", and in {same} of the {len(held)} held-out ones" if held else ""
            yield Finding(
                name="one_answer",
                weight="notable",
                title="Most scenarios have one answer",
                evidence=f"{name} is {value} in {num} of {sum(counts.values())} train scenarios"
                f"{also}: whoever always gives it succeeds in {share:.0%}",
                reason="The policy learns to say it whatever is asked, and the reward hides that.",
                change="the data: as many scenarios of each answer, in both splits",
                certainty=0.85,
            )
        return


def answers_by_chance(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if answers depend on the questions but agree with targets only by chance.

    The policy gives siblings the same answer more often than chance would, so it goes by the
    question, and yet it meets the target no more often than chance would. Reads the first third
    of the groups: what is rewarded by chance drives the policy to one answer for all.
    Silent where targets are of many kinds, where one of them is in the majority, where the policy
    gives one answer to all from the start, or where it meets the targets later.
    """
    for name in ANSWERS:
        groups = [g for g in run.groups if name in (g[0]["scenario"] or {})]
        if len(groups) < ENOUGH:
            continue
        third = max(ENOUGH, len(groups) // 3)
        early, late = _agreement(groups[:third], name), _agreement(groups[-third:], name)
        if early is None or (late and late.with_target.low > CHANCE):
            return
        same, kappa = early.of_siblings, early.with_target
        if same.low < early.by_chance + CHANCE:
            return
        if kappa.value < CHANCE and kappa.high < 3 * CHANCE:
            yield Finding(
                name="answers_by_chance",
                weight="notable",
                title="Answers have nothing to do with their targets",
                evidence=f"in the first {third} groups siblings agree in {same.value:.0%} of their "
                f"answers (chance: {early.by_chance:.0%}), so these go by the question; yet they "
                f"meet {name} in {kappa.value:+.2f} [{kappa.low:+.2f}, {kappa.high:+.2f}] of the "
                "cases beyond chance",
                reason="Targets of other questions (a shifted row, a wrong join), or questions "
                "from which the target cannot be known.",
                change="the data: read ten rows, each question beside its target",
                certainty=0.85,
                example=place(groups[third - 1][0]),
            )
        return


@dataclass(frozen=True, slots=True)
class AnswerAgreement:
    """How far answers agree: shares of 0 to 1."""

    of_siblings: Estimate
    by_chance: float  # what siblings would agree in
    with_target: Estimate  # Cohen's kappa: beyond chance


def _agreement(groups: list[list[Row]], name: str) -> AnswerAgreement | None:
    """Return how far answers agree; None where nothing could show it."""
    pairs = [(_answer(row), _targets(row, name)) for g in groups for row in g]
    known = {t for _, targets in pairs for t in targets}
    given = Counter(a for a, _ in pairs if a in known)
    meant = Counter(targets[0] for _, targets in pairs if len(targets) == 1)
    num = sum(given.values())
    if not 1 < len(known) <= KINDS or not meant or num < len(pairs) / 2:
        return None
    # Of a kind that is this frequent, hardly anything is left beyond chance.
    if max(given.values()) / num > ONE or max(meant.values()) / sum(meant.values()) > ONE:
        return None
    chance = sum(given[v] / num * meant[v] / sum(meant.values()) for v in known)
    hits, alike = [], []
    for g in groups:
        said = [a for row in g if (a := _answer(row)) in known]
        if len(said) > 1:
            target = _targets(g[0], name)
            hits.append((sum(a in target for a in said) / len(said) - chance) / (1 - chance))
            alike.append(
                sum(n * (n - 1) for n in Counter(said).values()) / len(said) / (len(said) - 1)
            )
    kappa, same = estimate(hits), estimate(alike)
    if kappa is None or same is None:
        return None
    return AnswerAgreement(same, sum((n / num) ** 2 for n in given.values()), kappa)


def _answer(row: Row) -> str:
    said = conduct_of(row)
    return said[-1].strip().casefold() if said else ""


def _targets(row: Row, name: str) -> list[str]:
    value = row["scenario"].get(name)
    return [str(v).strip().casefold() for v in (value if isinstance(value, list) else [value])]


RULES = (kind_never_succeeds, one_answer, answers_by_chance)
