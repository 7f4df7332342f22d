"""Findings on the worth of calls: tools that never pay, have no effect, or are no longer used."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from art_cli.why.evidence import Evidence, Row, place, reward_scale, rewards_of
from art_cli.why.finding import Finding

ENOUGH_GROUPS = 20  # enough for a mean difference
CLOSE = 0.1  # a chance difference between siblings, relative to the range of rewards
HALF = 0.5
# Episodes with a call. On average, the best of 40 is exceeded by one in 40 further ones.
ENOUGH_USED = 40


def tools_that_do_not_pay(run: Evidence) -> Iterator[Finding]:
    """Yield findings of tools whose episodes never earn much, and of abandoned tools."""
    scored = [row for row in run.rows if row["reward"] is not None]
    early = [row for group in run.groups[: len(run.groups) // 3] for row in group]
    late = [row for group in run.late_groups for row in group]
    if not scored:
        return
    low = min(row["reward"] for row in scored)
    for tool in sorted({step["tool"] for row in scored for step in row["steps"] if step["tool"]}):
        users = [row for row in scored if _used(row, tool)]
        ids = {id(row) for row in users}
        others = [row["reward"] for row in scored if id(row) not in ids]
        if len(users) < ENOUGH_USED:
            continue
        best = max(row["reward"] for row in users)
        if len(others) >= ENOUGH_USED and best - low < HALF * (max(others) - low):
            yield Finding(
                name="tool_never_pays",
                weight="notable",
                title=f"No episode that calls {tool} earns much",
                evidence=f"the best of {len(users)} earned {best:.2f}, and the best of "
                f"{len(others)} without it {max(others):.2f}",
                reason="It does nothing, the score does not see what it does, or it is always "
                "wrong to call it.",
                change=f"the env's {tool} and score(): play a scenario by hand in which it is due",
                certainty=0.7,
                example=place(max(users, key=lambda row: row["reward"])),
            )
        before, after = (
            sum(_used(row, tool) for row in rows) / len(rows) for rows in (early, late)
        )
        # In runs that learn, tools with that much use lost half of it (scripts/bench/faults.py).
        if before > 0.15 and after < before / 4:
            yield Finding(
                name="tool_abandoned",
                weight="notable",
                title=f"The policy has stopped calling {tool}",
                evidence=f"{before:.0%} of the trajectories called it in the first third, and "
                f"{after:.0%} in the last",
                reason="Where the task needs it, the reward pays for doing without.",
                change="the env's score(): read two siblings, one with the call and one without",
                certainty=0.55,
                example=place(users[-1]),
            )


def tools_without_effect(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if siblings earn the same with and without calls of a tool, in all groups."""
    scale = reward_scale(run)
    top = max((r for group in run.groups for r in rewards_of(group)), default=0.0)
    gaps: dict[str, list[float]] = defaultdict(list)
    example: dict[str, Row] = {}
    for group in run.groups:
        rows = [row for row in group if row["reward"] is not None]
        if not rows or min(row["reward"] for row in rows) > top - CLOSE * scale:
            continue  # all succeed, whatever they do
        for tool in sorted({s["tool"] for row in rows for s in row["steps"] if s["tool"]}):
            with_it = [row for row in rows if _used(row, tool)]
            ids = {id(row) for row in with_it}
            others = [row["reward"] for row in rows if id(row) not in ids]
            if min(len(with_it), len(others)) > 1:  # a single episode may be chance
                gap = statistics.fmean(row["reward"] for row in with_it) - statistics.fmean(others)
                gaps[tool].append(abs(gap))
                example[tool] = with_it[0]
    for tool, found in gaps.items():
        gap = statistics.fmean(found)
        # Healthy runs had 0.4 and more, also for tools that are right half of the time. Writes
        # without an effect had 0.04 (scripts/bench/faults.py).
        if len(found) >= ENOUGH_GROUPS and gap < CLOSE * scale:
            yield Finding(
                name="tool_without_effect",
                weight="notable",
                title=f"Whether {tool} is called changes nothing in the reward",
                evidence=f"in {len(found)} groups some siblings called it and some did not, and "
                f"the two earned the same within {gap:.2f}",
                reason="The tool does nothing, or the score does not see what it does.",
                change=f"the env's {tool} and score(): play a scenario by hand in which it is due",
                certainty=0.7,
                example=place(example[tool]),
            )


def _used(row: Row, tool: str) -> bool:
    return any(step["tool"] == tool and not step["is_error"] for step in row["steps"])


RULES = (tools_that_do_not_pay, tools_without_effect)
