"""Findings on tools: they refuse, cut their results, answer by chance, and pay or not."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from art_cli.config.sections.reward import RewardConfig
from art_cli.why.episodes import weight_of
from art_cli.why.evidence import Evidence, Row, place, reward_scale, rewards_of
from art_cli.why.finding import RunFinding

# Of episodes with a refused call, how many earn the most: 0.28 where the refusals were right, and
# 0.03 where the tool was dead (scripts/bench/faults.py).
SUCCEED = 0.15
ENOUGH_GROUPS = 20  # of which a mean difference is known
CLOSE = 0.1  # of the scale of rewards: a difference that siblings have by chance
DIFFERENT = 8  # results, of which a share can be known
RECEIPT = 40  # characters of a result that says no more than that something was done
HALF = 0.5
# Episodes with a call. The best of 40 is beaten by one of 40 further ones, on average.
ENOUGH_USED = 40
MARKS = ("...", "…", "[truncated]", "(truncated)", "<truncated>")


def tools_fail(run: Evidence) -> Iterator[RunFinding]:
    """Yield findings of tools that are refused nearly always, and of calls that cannot be read."""
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
        elif tool and len(wrong) / num > 0.9 and (step := _breaks(run, tool)):
            yield _broke(tool, wrong, num, step)
        elif tool and len(wrong) / num > 0.9:
            yield _dead(tool, wrong, num, total, _is_free(run, [row for _, row in wrong]))
        elif tool and len(wrong) / num > 0.5 and len(wrong) / total > 0.1:
            yield _misused(tool, wrong, num)


def _broken(wrong: list[tuple[str, Row]], total: int, reward: RewardConfig | None) -> RunFinding:
    priced = reward is not None and reward.invalid_action_cost
    price = "" if priced else "; or let them cost something: reward.invalid_action_cost"
    return RunFinding(
        name="broken_calls",
        weight=weight_of(len(wrong) / total),
        title="Calls of tools cannot be read",
        evidence=f"{len(wrong)} of the last {total} calls; the last answer: {_short(wrong[-1][0])}",
        reason="The model does not write calls as its template says.",
        change=f"model.tool_format, more sft.epochs, or a base trained to call tools{price}",
        certainty=min(1.0, 0.5 + len(wrong) / total),
        example=place(wrong[-1][1]),
    )


def _dead(
    tool: str, wrong: list[tuple[str, Row]], num: int, total: int, is_free: bool
) -> RunFinding:
    return RunFinding(
        name="dead_tool",
        weight="notable" if is_free else "serious",
        title=f"The tool {tool} is refused nearly always",
        evidence=f"{len(wrong)} of its last {num} calls; the last answer: {_short(wrong[-1][0])}"
        + ("; many of these episodes earned the most all the same" if is_free else ""),
        reason="It never works, the policy does not know how it is called, or it is rightly "
        "refused.",
        change=f"the env's {tool}: call it by hand; its description and its messages of refusal",
        certainty=min(1.0, 0.7 + num / total),
        example=place(wrong[-1][1]),
    )


def _breaks(run: Evidence, tool: str) -> int:
    """Return the step from which on a tool that had worked was refused; 0 if it never worked."""
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


def _broke(tool: str, wrong: list[tuple[str, Row]], num: int, step: int) -> RunFinding:
    return RunFinding(
        name="tool_breaks",
        weight="serious",
        title=f"The tool {tool} worked, and is refused since about step {step}",
        evidence=f"{len(wrong)} of its last {num} calls; the last answer: {_short(wrong[-1][0])}",
        reason="A quota, a key or a service ended, or the policy has forgotten how it is called.",
        change=f"the env's {tool}: call it by hand; then art run --resume --from-step {step - 1}",
        certainty=0.97,
        example=place(wrong[-1][1]),
    )


def _is_free(run: Evidence, refused: list[Row]) -> bool:
    """Return whether episodes with a refused call succeed often enough: it was not needed."""
    top = max((r for group in run.late_groups for r in rewards_of(group)), default=0.0)
    least = top - CLOSE * reward_scale(run)
    rewards = [row["reward"] for row in refused if row["reward"] is not None]
    return bool(rewards) and sum(r >= least for r in rewards) / len(rewards) > SUCCEED


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


def _results(run: Evidence) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each step in which a tool gave a result, behind its trajectory."""
    for row in run.rows:
        for step in row["steps"]:
            if step["tool"] and not step["is_error"] and step["result"]:
                yield row, step


def results_cut(run: Evidence) -> Iterator[RunFinding]:
    """Results of a tool are JSON that ends early, or say that they are cut."""
    results: dict[str, dict[str, Row]] = defaultdict(dict)
    for row, step in _results(run):
        results[step["tool"]][str(step["result"])] = row
    for tool, said in results.items():
        cut = [result for result in said if _is_cut(result)]
        if len(said) < DIFFERENT or len(cut) / len(said) <= HALF:
            continue
        longest = max(map(len, cut))
        yield RunFinding(
            name="results_cut",
            weight="serious",
            title=f"The tool {tool} cuts its results",
            evidence=f"{len(cut)} of {len(said)} different results end early, none of them after "
            f"more than {longest} characters: {_short(cut[-1][-60:])}",
            reason="What was cut off may be what the policy has to know.",
            change=f"the env's {tool}: a longer limit, or less in each result",
            certainty=0.8,
            example=place(said[cut[-1]]),
        )


def _is_cut(result: str) -> bool:
    text = result.strip()
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            # Of Python's own {'a': 1} the end is there, too.
            return text[-1:] not in ("}", "]")
        return False
    return text.casefold().endswith(MARKS)


def constant_results(run: Evidence) -> Iterator[RunFinding]:
    """A tool gives one result to all arguments."""
    asked: dict[str, set[str]] = defaultdict(set)
    given: dict[str, set[str]] = defaultdict(set)
    example: dict[str, Row] = {}
    for row, step in _results(run):
        if step.get("arguments"):
            asked[step["tool"]].add(str(step["arguments"]))
            given[step["tool"]].add(str(step["result"]))
            example[step["tool"]] = row
    for tool, results in given.items():
        said = next(iter(results))
        # A shorter one says that something was done.
        if len(results) == 1 and len(asked[tool]) >= DIFFERENT and len(said) > RECEIPT:
            yield RunFinding(
                name="constant_tool",
                weight="notable",
                title=f"The tool {tool} answers the same whatever it is asked",
                evidence=f"{len(asked[tool])} different arguments, one result: {_short(said)}",
                reason="It tells the policy nothing: it ignores its arguments, or shows an error.",
                change=f"the env's {tool}: call it by hand with two different arguments",
                certainty=0.75,
                example=place(example[tool]),
            )


def results_vary(run: Evidence) -> Iterator[RunFinding]:
    """Siblings that did the same so far were told something else."""
    if run.experiment.env.opponents:  # who play otherwise
        return
    num = differ = ordered = 0
    example, tool = "", ""
    for group in run.groups:
        first: dict[tuple[Any, ...], str] = {}
        for row in group:
            done: tuple[Any, ...] = ()
            for step in row["steps"]:
                done += (step["tool"], str(step.get("arguments")), str(step.get("said")))
                if step["tool"] is None or step["result"] is None:
                    continue
                result = str(step["result"])
                known = first.setdefault(done, result)
                if known is result:
                    continue
                num += 1
                if known != result:
                    differ, tool = differ + 1, step["tool"]
                    ordered += sorted(known) == sorted(result)
                    example = example or place(row)
                    break  # what follows differs for that reason
    # A service that fails now and then gives one in twenty.
    if num < 20 or differ / num < 0.05:
        return
    how = ", in another order alone" if ordered > HALF * differ else ""
    yield RunFinding(
        name="results_vary",
        weight="notable",
        title="The same calls in the same scenario give other results",
        evidence=f"{differ} of {num} results differ from those of a sibling that had done the same "
        f"so far{how}; among them results of {tool}",
        reason="Siblings are compared as if they had been told the same, so part of the advantage "
        "is chance.",
        change=f"the env's {tool}: draw from self.rng alone, sort what has no order, and keep no "
        "state that episodes share",
        certainty=0.75,
        example=example,
    )


def tools_that_do_not_pay(run: Evidence) -> Iterator[RunFinding]:
    """Yield findings of tools whose episodes never earn much, and of tools that fell out of use."""
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
            yield RunFinding(
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
        # In runs that learn, tools of that use lost half of it (scripts/bench/faults.py).
        if before > 0.15 and after < before / 4:
            yield RunFinding(
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


def tools_without_effect(run: Evidence) -> Iterator[RunFinding]:
    """Siblings that call a tool earn what those earn that do not, in each group."""
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
            if min(len(with_it), len(others)) > 1:  # one alone is chance
                gap = statistics.fmean(row["reward"] for row in with_it) - statistics.fmean(others)
                gaps[tool].append(abs(gap))
                example[tool] = with_it[0]
    for tool, found in gaps.items():
        gap = statistics.fmean(found)
        # Healthy runs had 0.4 and more, also of tools that are right half of the time; writes that
        # did nothing had 0.04 (scripts/bench/faults.py).
        if len(found) >= ENOUGH_GROUPS and gap < CLOSE * scale:
            yield RunFinding(
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


def _short(text: Any) -> str:
    one = " ".join(str(text).split())
    return one if len(one) <= 100 else one[:97] + "..."


RULES = (
    tools_fail,
    results_cut,
    constant_results,
    results_vary,
    tools_that_do_not_pay,
    tools_without_effect,
)
