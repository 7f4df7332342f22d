"""Findings on calls that the env does not accept: refused calls, unparsable calls, broken tools."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from art_cli.why.episodes import weight_of
from art_cli.why.evidence import (
    Evidence,
    Row,
    arguments_of,
    opening_of,
    place,
    reward_scale,
    rewards_of,
    short,
)
from art_cli.why.finding import Finding

# The share of episodes with a refused call that earn the most: 0.28 where the refusals were right,
# and 0.03 where the tool was broken (scripts/bench/faults.py).
SUCCEED = 0.15
CLOSE = 0.1  # a chance difference between siblings, relative to the range of rewards
HALF = 0.5
FEW = 0.05  # share of the calls
ENOUGH_SCENARIOS = 10  # number of each kind
# Metrics of an env that say whether an action was against the rules. In runs that learn, up to 9%
# of the trajectories had one.
ILLEGAL = ("illegal", "invalid", "illegal_move", "invalid_move", "illegal_moves", "invalid_moves")
ILLEGAL += ("illegal_action", "invalid_action", "illegal_actions", "invalid_actions")
REFUSED = 0.75


def tools_fail(run: Evidence) -> Iterator[Finding]:
    """Yield findings of unparsable calls, and of tools that refuse nearly all calls.

    Calls of tools that the env does not offer are one finding, which blames no tool of the env.
    """
    calls: Counter[str] = Counter()
    errors: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    unknown: list[tuple[str, Row]] = []
    total = 0
    for step, row in _calls(run.late_groups):
        total += 1
        if step.get("is_unknown"):
            unknown.append((str(step["result"]), row))
            continue
        calls[step["tool"]] += 1
        if step["is_error"]:
            errors[step["tool"]].append((str(step["result"]), row))
    if total >= 10 and len(unknown) / total > FEW:
        yield _unknown(unknown, total)
    for tool, num in calls.most_common():
        wrong = errors[tool]
        if not wrong or num < max(10, 0.02 * total):
            continue
        if tool == "" and len(wrong) / total > 2 * FEW:
            yield _broken(run, wrong, total)
        elif tool and len(wrong) / num > 0.9 and (step := _breaks(run, tool)):
            yield _broke(tool, wrong, num, step)
        elif tool and len(wrong) / num > 0.9:
            yield _dead(tool, wrong, num, total, _is_free(run, [row for _, row in wrong]))
        elif tool and len(wrong) / num > HALF and len(wrong) / total > 2 * FEW:
            yield _misused(tool, wrong, num)


def _calls(groups: list[list[Row]]) -> Iterator[tuple[dict[str, Any], Row]]:
    """Yield each call, including unparsable ones, and its trajectory."""
    for group in groups:
        for row in group:
            for step in row["steps"]:
                if step["tool"] is not None:
                    yield step, row


def _usual(wrong: list[tuple[str, Row]]) -> str:
    """Return the most frequent answer to these calls; of equally frequent ones, the first."""
    return short(Counter(said for said, _ in wrong).most_common(1)[0][0])


def _unknown(wrong: list[tuple[str, Row]], total: int) -> Finding:
    return Finding(
        name="unknown_tool",
        weight=weight_of(len(wrong) / total),
        title="The policy calls tools that do not exist",
        evidence=f"{len(wrong)} of the last {total} calls; most often: {_usual(wrong)}",
        reason="The policy makes the names up, or a prompt or the demonstrations name other tools.",
        change="the names of tools in the prompt and the demonstrations; more sft.epochs",
        certainty=min(1.0, 0.5 + len(wrong) / total),
        example=place(wrong[-1][1]),
    )


def _broken(run: Evidence, wrong: list[tuple[str, Row]], total: int) -> Finding:
    reward = run.experiment.reward
    priced = reward is not None and reward.invalid_action_cost
    price = "" if priced else "; or let them cost something: reward.invalid_action_cost"
    share = len(wrong) / total
    early = [step["tool"] == "" for step, _ in _calls(run.groups[: max(1, len(run.groups) // 6)])]
    began = sum(early) / max(1, len(early))
    # A base that cannot write calls fails at them from the first step on.
    grew = len(run.train) > 3 and began < min(2 * FEW, share / 2)
    return Finding(
        name="broken_calls",
        weight="notable" if grew else weight_of(share),
        title="Fewer and fewer calls of tools can be read"
        if grew
        else "Calls of tools cannot be read",
        evidence=f"{len(wrong)} of the last {total} calls"
        + (f", and {began:.0%} at first" if grew else "")
        + f"; most often: {_usual(wrong)}",
        reason="Training has made them so: it follows from what is rewarded, or from updates that "
        "are too large."
        if grew
        else "The model does not write calls as its template says.",
        change=(
            f"the other findings first; train.learning_rate (it is "
            f"{run.experiment.train.learning_rate:g})"
            if grew
            else "model.tool_format, more sft.epochs, or a base trained to call tools"
        )
        + price,
        certainty=min(1.0, 0.5 + share),
        example=place(wrong[-1][1]),
    )


def _dead(tool: str, wrong: list[tuple[str, Row]], num: int, total: int, is_free: bool) -> Finding:
    return Finding(
        name="dead_tool",
        weight="notable" if is_free else "serious",
        title=f"The tool {tool} is refused nearly always",
        evidence=f"{len(wrong)} of its last {num} calls; most often: {_usual(wrong)}"
        + ("; many of these episodes earned the most all the same" if is_free else ""),
        reason="It never works, the policy does not know how it is called, or it is rightly "
        "refused.",
        change=f"the env's {tool}: call it by hand; its description and its messages of refusal",
        certainty=min(1.0, 0.7 + num / total),
        example=place(wrong[-1][1]),
    )


def _breaks(run: Evidence, tool: str) -> int:
    """Return the step from which a working tool was always refused, or 0 if it never worked."""
    shares: dict[int, float] = {}
    for step, groups in sorted(run.train.items()):
        calls = [
            s["is_error"] for g in groups for row in g for s in row["steps"] if s["tool"] == tool
        ]
        if calls:
            shares[step] = sum(calls) / len(calls)
    first = list(shares.values())[: max(1, len(shares) // 4)]
    if not first or statistics.fmean(first) > HALF:
        return 0
    return next(step for step, share in reversed(shares.items()) if share <= HALF) + 1


def _broke(tool: str, wrong: list[tuple[str, Row]], num: int, step: int) -> Finding:
    return Finding(
        name="tool_breaks",
        weight="serious",
        title=f"The tool {tool} worked, and is refused since about step {step}",
        evidence=f"{len(wrong)} of its last {num} calls; most often: {_usual(wrong)}",
        reason="A quota, a key or a service ended, or the policy has forgotten how it is called.",
        change=f"the env's {tool}: call it by hand; then art run --resume --from-step {step - 1}",
        certainty=0.97,
        example=place(wrong[-1][1]),
    )


def _is_free(run: Evidence, refused: list[Row]) -> bool:
    """Return whether episodes with a refused call succeed often enough to do without the call."""
    top = max((r for group in run.late_groups for r in rewards_of(group)), default=0.0)
    least = top - CLOSE * reward_scale(run)
    rewards = [row["reward"] for row in refused if row["reward"] is not None]
    return bool(rewards) and sum(r >= least for r in rewards) / len(rewards) > SUCCEED


def _misused(tool: str, wrong: list[tuple[str, Row]], num: int) -> Finding:
    return Finding(
        name="tool_errors",
        weight="notable",
        title=f"The tool {tool} is often refused",
        evidence=f"{len(wrong)} of its last {num} calls; most often: {_usual(wrong)}",
        reason="Turns are spent on it.",
        change=f"the description of {tool}, and messages of refusal that say what is expected",
        example=place(wrong[-1][1]),
    )


def refused_by_scenario(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each tool that refuses arguments from the prompt in certain scenarios.

    Considers calls whose arguments all occur verbatim in the opening. In some of the scenarios all
    of these calls are refused and no episode earns anything; in others they are accepted. There is
    no finding if the refusals are right: then episodes without the tool earn something.
    """
    answers: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    said: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    paid: dict[str, float] = {}
    for row in run.rows:
        if row["reward"] is None:
            continue
        name = row["scenario_id"]
        paid[name] = max(paid.get(name, row["reward"]), row["reward"])
        opening = "\n".join(opening_of(row))
        for step in row["steps"]:
            given = [v for v in arguments_of(step).values() if v != ""]
            if step["tool"] and given and all(isinstance(v, str) and v in opening for v in given):
                answers[step["tool"]][name].append(step["is_error"])
                if step["is_error"]:
                    said[step["tool"]].append((str(step["result"]), row))
    low = min((row["reward"] for row in run.rows if row["reward"] is not None), default=0.0)
    least = low + CLOSE * reward_scale(run)
    for tool, of in answers.items():
        asked = {name: each for name, each in of.items() if len(each) > 2}
        refused = [name for name, each in asked.items() if all(each)]
        open_to = [name for name, each in asked.items() if not any(each)]
        if min(len(refused), len(open_to)) < ENOUGH_SCENARIOS:
            continue
        lost, won = (sum(paid[n] <= least for n in names) for names in (refused, open_to))
        if lost / len(refused) > 0.9 and won / len(open_to) < 1 - HALF / 2:
            yield Finding(
                name="refused_by_scenario",
                weight="serious",
                title=f"The tool {tool} refuses what the prompt says, in part of the scenarios",
                evidence=f"with arguments that stand in the opening it refuses every call in "
                f"{len(refused)} of {len(asked)} scenarios, and none in {len(open_to)}; of the "
                f"former {lost} never pay, of the latter {won}; most often: "
                f"{_usual(said[tool])}",
                reason="These scenarios cannot be solved: what the tool needs is not there.",
                change=f"the env's {tool}: call it by hand in such a scenario; its data or index",
                certainty=0.93,
                example=place(said[tool][-1][1]),
            )


def refused_actions(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the env calls nearly every episode's actions illegal until the end.

    Uses the env's metrics whose names say so. There is no finding once their share falls below
    three quarters, because the policy then learns what is legal.
    """
    thirds = (run.groups[: max(1, len(run.groups) // 3)], run.late_groups)
    for name in ILLEGAL:
        marked = [[row for g in groups for row in g if name in row["metrics"]] for groups in thirds]
        if not all(marked):
            continue
        rows = [row for row in marked[1] if row["metrics"][name] > 0]
        shares = [sum(row["metrics"][name] > 0 for row in of) / len(of) for of in marked]
        if min(shares) > REFUSED and run.steps >= 5:
            yield Finding(
                name="refused_actions",
                weight="serious",
                title="The env refuses nearly every episode's actions, from the first step on",
                evidence=f"{name} is above 0 in {shares[0]:.0%} of the first trajectories, and in "
                f"{shares[1]:.0%} of the last",
                reason="Either the policy was never shown what is legal, or the env reads another "
                "action than the one that was said.",
                change="the env's reply(): play by hand an action that the prompt shows to be "
                "legal, and compare what it does with what was said; else sft",
                certainty=0.9,
                example=place(rows[-1]),
            )
            return


def legality_not_shown(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where one conversation, word for word, ends legally here and illegally there.

    Where all that the policy read and said is the same, so is what it could know of the rules.
    Reads metrics of the env that say by their name what is illegal. Silent with other players.
    """
    if run.experiment.env.opponents:
        return
    for name in ILLEGAL:
        rows = [row for row in run.rows if name in row["metrics"] and not row["truncated"]]
        same: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            said = [[m["role"], m["content"], m.get("tool_calls")] for m in row["messages"]]
            same[json.dumps(said, sort_keys=True, default=str)].append(row)
        several = [each for each in same.values() if len(each) > 1]
        mixed = [each for each in several if len({row["metrics"][name] > 0 for row in each}) > 1]
        if len(mixed) < ENOUGH_SCENARIOS or len(mixed) / len(several) < FEW:
            continue
        share = sum(row["metrics"][name] > 0 for row in rows) / len(rows)
        yield Finding(
            name="legality_not_shown",
            weight=weight_of(share),
            title="The prompt does not show what decides whether an action is legal",
            evidence=f"{len(mixed)} of {len(several)} conversations that occur more than once, "
            f"word for word, have {name} 0 in one episode and above 0 in another; it is above 0 "
            f"in {share:.0%} of all trajectories",
            reason="What the policy reads is old or incomplete, or the env plays another action "
            "than the one that was said.",
            change="the env's start() and reply(): compare the state that they show with the state "
            "that the next action is played on",
            certainty=0.9,
            example=place(next(row for row in mixed[0] if row["metrics"][name] > 0)),
        )
        return


RULES = (
    tools_fail,
    refused_by_scenario,
    refused_actions,
    legality_not_shown,
)
