"""Findings on the learning signal: whether rewards depend on actions, in scenarios that differ."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator

from art_cli.envs.game import SEAT
from art_cli.system.untrusted import is_number
from art_cli.why.evidence import (
    Evidence,
    Row,
    conduct_of,
    opening_of,
    place,
    reward_scale,
    rewards_of,
)
from art_cli.why.finding import Finding

ENOUGH = 100  # groups, enough for a share
# The share of groups whose siblings earn alike, within a tenth of the range: 98% with a reward that
# depended on the clock, because an episode takes some time; up to 66% with a reward that depends on
# the actions, for a policy that knew nothing about the case (scripts/bench/faults.py).
ALIKE, NEARLY_ALL = 0.1, 0.95
FEW = 12  # scenarios, which a policy soon knows by heart
MUCH = 0.2  # of the sum of |advantage|: what a few outliers may have before they lead the update

Answers = dict[tuple[str, ...], str]


def outliers(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a few rewards are many times larger or smaller than all others."""
    rewards = sorted(r for g in run.groups for r in rewards_of(g))
    if len(rewards) < ENOUGH:
        return
    low, high = rewards[len(rewards) // 20], rewards[-1 - len(rewards) // 20]
    span, middle = high - low, statistics.median(rewards)
    # Suppose nine in ten rewards span 1. A reward of 5 then has 25 times the weight in a squared
    # error, and its group an advantage that hides all other differences.
    far = [r for r in rewards if abs(r - middle) > 5 * span]
    if span > 0 and far:
        value = max(far, key=lambda r: abs(r - middle))
        example = next(row for row in run.rows if row["reward"] == value)
        share = _share_of_update(run, {*far})
        outweigh = share > MUCH
        yield Finding(
            name="outlier_rewards",
            weight="serious" if outweigh else "notable",
            title="A few rewards outweigh all others"
            if outweigh
            else "A few rewards lie far from all others",
            evidence=f"{len(far)} of {len(rewards)} rewards are as far out as {value:.4g}; nine in "
            f"ten lie between {low:.4g} and {high:.4g}; the few have {share:.0%} of the sum of "
            "|advantage|",
            reason="The update follows these few. The cause may be a unit, or a sum without limit."
            if outweigh
            else "The update hardly follows them, so far. The cause may be a unit, a sum without "
            "limit, or a rare outcome that is meant.",
            change="the env's score(): limit it, or correct its unit",
            certainty=0.95 if outweigh else 0.5,
            example=place(example),
        )


def _share_of_update(run: Evidence, far: set[float]) -> float:
    """Return the share of the sum of |advantage| that trajectories with these rewards have."""
    whole = few = 0.0
    for group in run.groups:
        rows = [row for row in group if row["reward"] is not None]
        middle = statistics.fmean(row["reward"] for row in rows) if rows else 0.0
        for row in rows:
            known = row.get("advantage")
            size = abs(row["reward"] - middle if known is None else known)
            whole += size
            few += size * (row["reward"] in far)
    return few / whole if whole > 0 else 0.0


def acts_for_nothing(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if siblings act differently but earn nearly the same, unlike other groups."""
    differ = [
        g for g in run.groups if len({conduct_of(r) for r in g}) > 1 and len(rewards_of(g)) > 1
    ]
    if len(differ) < 20:
        return
    near = ALIKE * reward_scale(run)
    alike = [g for g in differ if max(rewards_of(g)) - min(rewards_of(g)) < near]
    between = statistics.pstdev([statistics.fmean(rewards_of(g)) for g in differ])
    if len(alike) / len(differ) > NEARLY_ALL and between > near:
        yield Finding(
            name="acts_for_nothing",
            weight="serious",
            title="The reward does not depend on what the policy does",
            evidence=f"in {len(alike)} of {len(differ)} groups whose siblings acted differently "
            f"all earned the same within {near:.2f}, and other groups earned otherwise",
            reason="The score follows the scenario or the time, not the play.",
            change="the env's score(): use what was done in this episode",
            certainty=0.9,
            example=place(alike[0][0]),
        )


def same_play_other_reward(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if two siblings with identical turns earned different rewards."""
    num, differ, example = 0, 0, ""
    for group in run.groups if not run.experiment.env.opponents else ():  # who play otherwise
        by_play: dict[tuple[object, ...], list[dict[str, object]]] = defaultdict(list)
        for row in group:
            if row["reward"] is not None and row["messages"]:
                by_play[opening_of(row), conduct_of(row)].append(row)
        for rows in by_play.values():
            num += len(rows) - 1
            first = rows[0]["reward"]
            others = [r for r in rows[1:] if abs(r["reward"] - first) > 1e-6]  # type: ignore[operator]
            differ += len(others)
            if others and not example:
                example = place(others[0])
    if num < 10 or differ < 3 or differ / num < 0.05:
        return
    judged = run.experiment.judge is not None
    yield Finding(
        name="same_play_other_reward",
        weight="notable" if judged and differ / num < 0.5 else "serious",
        title="The same play earns different rewards",
        evidence=f"{differ} of {num} trajectories earned otherwise than a sibling that said the "
        "same, word for word",
        reason="Advantages then reward chance: a state that episodes share, a random score, a "
        "judge that contradicts itself, or rewards of other trajectories.",
        change="judge.votes: 3, and art judge audit"
        if judged
        else "the env: draw from self.rng alone, keep no state on the class or the module",
        certainty=min(1.0, 0.5 + differ / num),
        example=example,
    )


def siblings_differ_at_start(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the siblings of a group have different openings."""
    if run.experiment.env.opponents:  # in a game, a player that moves first may move differently
        return
    groups = [g for g in run.groups if len(g) > 1]
    wrong = [g for g in groups if len({opening_of(row) for row in g}) > 1]
    if groups and len(wrong) / len(groups) > 0.05:
        yield Finding(
            name="siblings_differ_at_start",
            weight="serious",
            title="Siblings do not play the same scenario",
            evidence=f"in {len(wrong)} of {len(groups)} groups the opening differs",
            reason="The advantage of a trajectory is then the luck of its scenario.",
            change="the env's start(): draw from self.rng alone, which siblings share",
            certainty=0.95,
            example=place(wrong[0][0]),
        )


def scenarios_repeat(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where scenarios of different names are the same, or are few.

    Silent in games, which open alike by design: there the seed decides what the others do.
    """
    num = len({row["scenario_id"] for row in run.rows})
    if num < FEW:
        if num and run.steps >= 5:
            yield _few(num)
        return
    apart = _told_apart(run.rows)
    different = sum(apart)
    if max(apart) > 1 and _is_drawn_from_seed(run.rows):
        return
    if different / num < 0.5:
        # Information that is not in the opening must be found out, so it cannot be memorized.
        is_known = different < FEW and max(apart) == 1
        yield Finding(
            name="scenarios_repeat",
            weight="serious" if is_known else "notable",
            title="Scenarios of different names are the same",
            evidence=f"{num} scenarios are {different} different ones: the others open alike, and "
            "answer alike where the model does the same",
            reason="The policy sees little variety, and learns that little by heart.",
            change="the env: make each instance from self.scenario.seed (self.rng), or drop "
            "duplicates from the data",
            certainty=0.85,
        )


def _is_drawn_from_seed(rows: list[Row]) -> bool:
    """Return whether the scenarios hold no data but a seat: the seed alone tells them apart."""
    return not any(key != SEAT for row in rows for key in row["scenario"] or {})


def _told_apart(rows: list[Row]) -> list[int]:
    """Return, for each opening, the number of scenarios with it that a player could tell apart.

    Two scenarios are the same if they open alike and answered all common actions alike. If they
    have no action in common, they count as two.
    """
    answers_of: dict[str, Answers] = defaultdict(dict)
    opening: dict[str, tuple[str, ...]] = {}
    for row in rows:
        opening[row["scenario_id"]] = opening_of(row)
        answers_of[row["scenario_id"]].update(_answers(row))
    apart: dict[tuple[str, ...], list[Answers]] = defaultdict(list)
    for name, answers in answers_of.items():
        for known in apart[opening[name]]:
            shared = known.keys() & answers.keys()
            is_comparable = shared or not (known and answers)
            if is_comparable and all(known[done] == answers[done] for done in shared):
                known.update(answers)
                break
        else:
            apart[opening[name]].append(answers)
    return [len(known) for known in apart.values()]


def _answers(row: Row) -> Answers:
    """Return the env's answer to each action, given all actions before it."""
    answers: Answers = {}
    done: tuple[str, ...] = ()
    for message in row["messages"]:
        if message["role"] == "assistant":
            done += (str(message.get("tool_calls") or message["content"]),)
        elif done:
            answers[done] = answers.get(done, "") + str(message["content"])
    return answers


def _few(num: int) -> Finding:
    return Finding(
        name="few_scenarios",
        weight="notable",
        title="There are few train scenarios",
        evidence=f"the steps that were looked at played {num} different ones",
        reason="They are soon learned by heart.",
        change="more scenarios in the env's scenarios(), of the split train",
    )


def chooses_in_vain(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if groups that the curriculum chose differ no more often than others."""
    differed, played = [0.0, 0.0], [0.0, 0.0]  # [explored, chosen] scenarios
    for row in run.metrics:
        share, groups = row.get("data/curriculum_explored"), row.get("data/groups")
        if not is_number(share) or not is_number(groups):
            continue
        names = ("data/curriculum_differed_explored", "data/curriculum_differed")
        for i, (name, part) in enumerate(zip(names, (share, 1 - share), strict=True)):
            num, share_of_them = part * groups, row.get(name)
            played[i] += num
            differed[i] += num * (share_of_them if is_number(share_of_them) else 0.0)
    if min(played) < ENOUGH:
        return
    explored, chosen = (a / b for a, b in zip(differed, played, strict=True))
    both = min(max(sum(differed) / sum(played), 0.0), 1.0)
    error = math.sqrt(both * (1 - both) * (1 / played[0] + 1 / played[1]))
    if chosen - explored < 2 * error:
        yield Finding(
            name="chooses_in_vain",
            weight="notable",
            title="The curriculum chooses no better than chance",
            evidence=f"{chosen:.0%} of the {played[1]:.0f} groups that it chose differ, and "
            f"{explored:.0%} of the {played[0]:.0f} that it did not choose",
            reason="Scenarios that cannot be told apart, or do not come again, have no history.",
            change="train.curriculum: uniform; or a kind and a level in the scenarios' data",
            certainty=0.8,
        )


RULES = (
    outliers,
    chooses_in_vain,
    acts_for_nothing,
    same_play_other_reward,
    siblings_differ_at_start,
    scenarios_repeat,
)
