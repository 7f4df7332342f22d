"""Findings on the ends of episodes, and on errors within them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from art_cli.why.evidence import Evidence, Row, last_third, mean, place, reward_scale
from art_cli.why.finding import Finding, Weight
from art_cli.why.success import metric_of_success

SOME, MANY = 0.05, 0.25  # shares of trajectories
# The share of cut-off trajectories that crashed. A client that raises on a cut-off turn crashes
# each time; an agent that crashes for another reason does so wherever turns end.
MOST_CRASH = 0.5
# Words of a failing service, socket or disk, which do not occur when a tool refuses a call.
OUTAGE = re.compile(
    r"connection (?:refused|reset|error|aborted)|connectionerror|timed? ?out|timeouterror|"
    r"service unavailable|bad gateway|traceback \(most recent|econnrefused|internal server error|"
    r"no space left|temporary failure in name",
    re.IGNORECASE,
)


def truncated(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if turns are cut off at the maximum number of tokens."""
    share = _late_share(run, "data/truncated")
    if not share > SOME:
        return
    tokens = run.experiment.sampling.max_tokens
    rows = [row for row in run.rows if row["truncated"] and row["stop_reason"] != "context"]
    crashed = sum(bool(row.get("crash")) for row in rows)
    if rows and crashed / len(rows) > MOST_CRASH:
        yield _client_raises(run, crashed, rows)
        return
    began = run.ratio("data/truncated", "data/trajectories")[:3]
    endless = mean(began) > 0.8 and share > 0.8
    yield Finding(
        name="truncated",
        weight=weight_of(share),
        title="Turns never end by themselves" if endless else "Turns are cut off",
        evidence=f"{share:.0%} of the last trajectories hit sampling.max_tokens ({tokens})",
        reason="Nothing stops a turn: the template ends it otherwise than the model learned."
        if endless
        else "A turn that is cut off calls no tool and gives no answer.",
        change="model.base (an instruct model), its chat template, or sft"
        if endless
        else f"sampling.max_tokens: {2 * tokens}, or ask for less in the prompt",
        certainty=min(1.0, 0.4 + share),
        example=place(rows[-1]) if rows else "",
    )


def _client_raises(run: Evidence, crashed: int, rows: list[Row]) -> Finding:
    """Return the finding that the agent's client raises an error when a turn is cut off."""
    tokens = run.experiment.sampling.max_tokens
    return Finding(
        name="truncated",
        weight="serious",
        title="The agent crashes where a turn is cut off",
        evidence=f"{crashed} of {len(rows)} trajectories that hit sampling.max_tokens ({tokens}) "
        "ended in a crash of the agent",
        reason="Its client raises on such an answer: OpenAI's Agents SDK on the status "
        "`incomplete`, OpenAI's parse() and stream() with LengthFinishReasonError. The crash is "
        "scored as bad play.",
        change=f"sampling.max_tokens: {2 * tokens}; in the agent, catch the error and go on (the "
        "answer is in it)",
        certainty=0.9,
        example=place(rows[-1]),
    )


def turn_limit(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if episodes end at the limit of turns and earn little."""
    rows = [row for group in run.late_groups for row in group if row["reward"] is not None]
    cut = [row for row in rows if row["stop_reason"] == "max_turns"]
    if not rows or len(cut) / len(rows) <= SOME:
        return
    low, scale = min(0.0, *(row["reward"] for row in rows)), reward_scale(run)
    paid = sum(row["reward"] for row in cut) / len(cut)
    if paid > low + 0.5 * scale:
        return  # the env's own limit ends such an episode
    turns = max(row.get("num_turns") or 0 for row in cut)
    yield Finding(
        name="turn_limit",
        weight=weight_of(len(cut) / len(rows)),
        title="Episodes end at the limit of turns",
        evidence=f"{len(cut)} of the last {len(rows)} trajectories ended at max_turns ({turns}), "
        f"and earned {paid:.2f} on average",
        reason="They end before there is an answer.",
        change="the env's max_turns, or a lower price of needless turns",
        certainty=min(1.0, 0.5 + len(cut) / len(rows)),
        example=place(cut[-1]),
    )


def context_full(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if conversations exceed the model's context."""
    share = _late_share(run, "data/context_full")
    if share > SOME:
        length = run.experiment.engine.max_model_len
        yield Finding(
            name="context_full",
            weight=weight_of(share),
            title="Conversations outgrow the context",
            evidence=f"{share:.0%} of the last trajectories filled engine.max_model_len ({length})",
            reason="The episode ends there, whatever was done.",
            change=f"engine.max_model_len: {2 * length}, or shorter results of tools",
            certainty=min(1.0, 0.4 + share),
        )


def failed(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if episodes fail with an error of the env, or miss a deadline.

    Episodes in which only the judge failed are not failures of the env.
    """
    lost = [row for row in run.rows if row["reward"] is None and row["error"]]
    rows = [row for row in lost if row["stop_reason"] in ("error", "timeout")]
    share = _late_share(run, "data/trajectories_failed") * (len(rows) / len(lost) if lost else 1)
    if not share > 0.02:
        return
    late = sum(row["stop_reason"] == "timeout" for row in rows)
    why = Counter(row["error"].splitlines()[0] for row in rows).most_common(1)
    yield Finding(
        name="deadlines" if late > len(rows) / 2 else "env_fails",
        weight="serious" if share > 0.1 else "notable",
        title="Episodes miss their deadline" if late > len(rows) / 2 else "Episodes fail",
        evidence=f"{share:.0%} of the last trajectories have no reward"
        + (f"; most often: {why[0][0]}" if why else "")
        + _lost_success(run, rows),
        reason="They are left out: their groups compare fewer, and what fails is never learned.",
        change="the env: art envs check plays it; its deadlines are tool_timeout and "
        "episode_timeout"
        if late > len(rows) / 2
        else "the env, at the line that the error names; art envs check plays it",
        certainty=min(1.0, 0.5 + share),
        example=place(rows[-1]) if rows else "",
    )


def _lost_success(run: Evidence, lost: list[Row]) -> str:
    """Return a clause that says that successes fail more often than others, if they do."""
    name = metric_of_success([*lost, *run.rows])
    if name is None or not lost:
        return ""
    paid = [row for row in run.rows if row["reward"] is not None]
    here, there = (
        sum(bool(row["metrics"][name]) for row in rows) / max(1, len(rows)) for rows in (lost, paid)
    )
    return f"; {name} is {here:.2f} in them, and {there:.2f} in the others" if here > there else ""


def outages_scored(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if infrastructure failed within an episode that has a reward."""
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
        yield Finding(
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


def forks(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if histories are rewritten, so that a trajectory has many sequences."""
    share = _late_share(run, "data/forks")
    if share > 0.5:
        rows = [row for row in run.rows if len(row["sequences"]) > 1]
        yield Finding(
            name="forks",
            weight="notable",
            title="Conversations fork: the history is not what was sampled",
            evidence=f"{share:.1f} forks a trajectory, lately",
            reason="Each fork is read again by the update, which costs time.",
            change="an agent that keeps its history as it was, or the chat template "
            "(it may drop thinking of earlier turns)",
            example=place(rows[-1]) if rows else "",
        )


def _late_share(run: Evidence, name: str) -> float:
    return mean(last_third(run.ratio(name, "data/trajectories")))


def weight_of(share: float) -> Weight:
    """Return the weight of a fault that a share of the trajectories has."""
    return "serious" if share > MANY else "notable"


RULES = (truncated, turn_limit, context_full, failed, outages_scored, forks)
