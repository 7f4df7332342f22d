"""How episodes end, and what goes wrong within them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from art_cli.config.schema import RewardConfig
from art_cli.why.evidence import Evidence, Row, last_third, mean, place
from art_cli.why.finding import RunFinding, Weight

SOME, MANY = 0.05, 0.25  # shares of trajectories
# What a service, a socket or a disk says when it fails; a tool's own refusal says none of it.
OUTAGE = re.compile(
    r"connection (?:refused|reset|error|aborted)|connectionerror|timed? ?out|timeouterror|"
    r"service unavailable|bad gateway|traceback \(most recent|econnrefused|internal server error|"
    r"no space left|temporary failure in name",
    re.IGNORECASE,
)


def truncated(run: Evidence) -> Iterator[RunFinding]:
    """Turns are cut off at the most tokens of one."""
    share = _late_share(run, "data/truncated")
    if not share > SOME:
        return
    tokens = run.experiment.sampling.max_tokens
    rows = [row for row in run.rows if row["truncated"] and row["stop_reason"] != "context"]
    began = run.ratio("data/truncated", "data/trajectories")[:3]
    endless = mean(began) > 0.8 and share > 0.8
    yield RunFinding(
        name="truncated",
        weight=_weight(share),
        title="Turns never end by themselves" if endless else "Turns are cut off",
        evidence=f"{share:.0%} of the last trajectories hit sampling.max_tokens ({tokens})",
        reason="Nothing stops a turn: the template ends it otherwise than the model learned."
        if endless
        else "A turn that is cut off calls no tool and gives no answer.",
        change="model.base (an instruct model), its chat template, or a warmup"
        if endless
        else f"sampling.max_tokens: {2 * tokens}, or ask for less in the prompt",
        certainty=min(1.0, 0.4 + share),
        example=place(rows[-1]) if rows else "",
    )


def context_full(run: Evidence) -> Iterator[RunFinding]:
    """Conversations outgrow the model's context."""
    share = _late_share(run, "data/context_full")
    if share > SOME:
        length = run.experiment.engine.max_model_len
        yield RunFinding(
            name="context_full",
            weight=_weight(share),
            title="Conversations outgrow the context",
            evidence=f"{share:.0%} of the last trajectories filled engine.max_model_len ({length})",
            reason="The episode ends there, whatever was done.",
            change=f"engine.max_model_len: {2 * length}, or shorter results of tools",
            certainty=min(1.0, 0.4 + share),
        )


def failed(run: Evidence) -> Iterator[RunFinding]:
    """Episodes fail by the env's own errors, or miss a deadline."""
    share = _late_share(run, "data/trajectories_failed")
    rows = [row for row in run.rows if row["reward"] is None and row["error"]]
    late = sum(row["stop_reason"] == "timeout" for row in rows)
    if not share > 0.02:
        return
    why = Counter(row["error"].splitlines()[0] for row in rows).most_common(1)
    yield RunFinding(
        name="deadlines" if late > len(rows) / 2 else "env_fails",
        weight="serious" if share > 0.1 else "notable",
        title="Episodes miss their deadline" if late > len(rows) / 2 else "Episodes fail",
        evidence=f"{share:.0%} of the last trajectories have no reward"
        + (f"; most often: {why[0][0]}" if why else ""),
        reason="They are left out: their groups compare fewer, and what fails is never learned.",
        change="the env: art envs check plays it; its deadlines are tool_timeout and "
        "episode_timeout",
        certainty=min(1.0, 0.5 + share),
        example=place(rows[-1]) if rows else "",
    )


def outages_scored(run: Evidence) -> Iterator[RunFinding]:
    """Infrastructure failed within the episode, and the policy was paid for it."""
    rows = [
        row
        for row in run.rows
        if row["reward"] is not None
        and any(OUTAGE.search(str(step["result"])) for step in row["steps"] if step["result"])
    ]
    share = len(rows) / max(1, len(run.rows))
    others = [row["reward"] for row in run.rows if row["reward"] is not None]
    if share > 0.03 and others:
        paid = sum(row["reward"] for row in rows) / len(rows)
        yield RunFinding(
            name="outages_scored",
            weight="serious",
            title="Failures of the infrastructure are scored as if they were the policy's",
            evidence=f"{share:.0%} of the trajectories read of an outage in a tool's result, and "
            f"earned {paid:.2f} on average, against {sum(others) / len(others):.2f} of all",
            reason="The policy learns to avoid what was right but failed by chance.",
            change="the tool: let the exception through, and the episode is left out",
            certainty=0.85,
            example=place(rows[-1]),
        )


def forks(run: Evidence) -> Iterator[RunFinding]:
    """Histories are rewritten, so that a trajectory is many sequences."""
    share = _late_share(run, "data/forks")
    if share > 0.5:
        rows = [row for row in run.rows if len(row["sequences"]) > 1]
        yield RunFinding(
            name="forks",
            weight="notable",
            title="Conversations fork: the history is not what was sampled",
            evidence=f"{share:.1f} forks a trajectory, lately",
            reason="Each fork is read again by the update, which costs time.",
            change="an agent that keeps its history as it was, or the chat template "
            "(it may drop thinking of earlier turns)",
            example=place(rows[-1]) if rows else "",
        )


def tools_fail(run: Evidence) -> Iterator[RunFinding]:
    """A tool is refused nearly always; calls cannot be read."""
    calls: Counter[str] = Counter()
    errors: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for group in run.late_groups:
        for row in group:
            for step in row["steps"]:
                if step["tool"] is not None:
                    calls[step["tool"]] += 1
                    if step["is_error"]:
                        errors[step["tool"]].append((str(step["result"]), row))
    total = sum(calls.values())
    for tool, num in calls.most_common():
        wrong = errors[tool]
        if not wrong or num < max(10, 0.02 * total):
            continue
        if tool == "" and len(wrong) / total > 0.1:
            yield _broken(wrong, total, run.experiment.reward)
        elif tool and len(wrong) / num > 0.9:
            yield _dead(tool, wrong, num, total)
        elif tool and len(wrong) / num > 0.5 and len(wrong) / total > 0.1:
            yield _misused(tool, wrong, num)


def _broken(wrong: list[tuple[str, Row]], total: int, reward: RewardConfig | None) -> RunFinding:
    priced = reward is not None and reward.invalid_action_cost
    price = "" if priced else "; or let them cost something: reward.invalid_action_cost"
    return RunFinding(
        name="broken_calls",
        weight=_weight(len(wrong) / total),
        title="Calls of tools cannot be read",
        evidence=f"{len(wrong)} of the last {total} calls; the last answer: {_short(wrong[-1][0])}",
        reason="The model does not write calls as its template says.",
        change="model.tool_format, a longer warmup, or a base that was trained to call tools"
        + price,
        certainty=min(1.0, 0.5 + len(wrong) / total),
        example=place(wrong[-1][1]),
    )


def _dead(tool: str, wrong: list[tuple[str, Row]], num: int, total: int) -> RunFinding:
    return RunFinding(
        name="dead_tool",
        weight="serious",
        title=f"The tool {tool} is refused nearly always",
        evidence=f"{len(wrong)} of its last {num} calls; the last answer: {_short(wrong[-1][0])}",
        reason="It never works, or the policy does not know how it is called.",
        change=f"the env's {tool}: call it by hand; its description and its messages of refusal",
        certainty=min(1.0, 0.7 + num / total),
        example=place(wrong[-1][1]),
    )


def _misused(tool: str, wrong: list[tuple[str, Row]], num: int) -> RunFinding:
    return RunFinding(
        name="tool_errors",
        weight="notable",
        title=f"The tool {tool} is often refused",
        evidence=f"{len(wrong)} of its last {num} calls; the last answer: {_short(wrong[-1][0])}",
        reason="Turns are spent on it.",
        change=f"the description of {tool}, and messages of refusal that say what is expected",
        example=place(wrong[-1][1]),
    )


def _late_share(run: Evidence, name: str) -> float:
    return mean(last_third(run.ratio(name, "data/trajectories")))


def _weight(share: float) -> Weight:
    return "serious" if share > MANY else "notable"


def _short(text: Any) -> str:
    one = " ".join(str(text).split())
    return one if len(one) <= 100 else one[:97] + "..."


RULES = (truncated, context_full, failed, outages_scored, forks, tools_fail)
