"""Findings on tool results: cut off, constant, random, of another scenario, or without effect."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from art_cli.why.evidence import Evidence, Row, arguments_of, opening_of, place, short
from art_cli.why.finding import Finding

DIFFERENT = 8  # distinct results, enough for a share
RECEIPT = 40  # characters of a result that only confirms an action
HALF = 0.5
MARKS = ("...", "…", "[truncated]", "(truncated)", "<truncated>")
FOREIGN = 0.1  # share of a tool's first results; by chance, a wrong scenario rarely has the same id
ENOUGH_FOREIGN = 20
ENOUGH_ACTS = 40  # uses of one action
NEVER, OFTEN = 0.97, 0.5  # shares of uses without an effect: of that action, and of all others


def _results(run: Evidence) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Yield each step in which a tool returned a result, with its trajectory."""
    for row in run.rows:
        for step in row["steps"]:
            if step["tool"] and not step["is_error"] and step["result"]:
                yield row, step


def results_cut(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if results of a tool are incomplete JSON, or say that they were cut."""
    results: dict[str, dict[str, Row]] = defaultdict(dict)
    for row, step in _results(run):
        results[step["tool"]][str(step["result"])] = row
    for tool, said in results.items():
        cut = [result for result in said if _is_cut(result)]
        if len(said) < DIFFERENT or len(cut) / len(said) <= HALF:
            continue
        longest = max(map(len, cut))
        yield Finding(
            name="results_cut",
            weight="serious",
            title=f"The tool {tool} cuts its results",
            evidence=f"{len(cut)} of {len(said)} different results end early, none of them after "
            f"more than {longest} characters: {short(cut[-1][-60:])}",
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
            # A Python dict such as {'a': 1} is not JSON, but it is complete.
            return text[-1:] not in ("}", "]")
        return False
    return text.casefold().endswith(MARKS)


def constant_results(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a tool gives the same result for all arguments."""
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
        # A shorter result only confirms an action.
        if len(results) == 1 and len(asked[tool]) >= DIFFERENT and len(said) > RECEIPT:
            yield Finding(
                name="constant_tool",
                weight="notable",
                title=f"The tool {tool} answers the same whatever it is asked",
                evidence=f"{len(asked[tool])} different arguments, one result: {short(said)}",
                reason="It tells the policy nothing: it ignores its arguments, or shows an error.",
                change=f"the env's {tool}: call it by hand with two different arguments",
                certainty=0.75,
                example=place(example[tool]),
            )


def results_vary(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if siblings with identical actions so far got different results."""
    if run.experiment.env.opponents:  # opponents may play differently
        return
    num = differ = ordered = 0
    example, tool = "", ""
    for group in run.groups:
        first: dict[tuple[Any, ...], str] = {}
        for row in group:
            done: tuple[Any, ...] = ()
            for step in row["steps"]:
                done += (step["tool"], str(step.get("arguments")), str(step.get("said")))
                if not step["tool"] or step["result"] is None:  # plain text or an unparsable call
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
                    break  # later results differ for this reason
    # A service that sometimes fails does so in about one call of twenty.
    if num < 20 or differ / num < 0.05:
        return
    how = ", in another order alone" if ordered > HALF * differ else ""
    yield Finding(
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


def foreign_results(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each tool whose results show the data of another scenario.

    Considers the first call of each episode, before any write: its JSON result must have the keys
    of an object in the scenario's data and the id in the call, but other values, which are those of
    an object in another scenario. There is no finding if an id means the same in all scenarios.
    """
    held = (row for rows in run.held_out.values() for row in rows)
    everything = {
        _text(each) for row in (*run.rows, *held) for each in _objects(row["scenario"] or {})
    }
    shown: Counter[str] = Counter()
    wrong: dict[str, list[tuple[Row, dict[str, Any]]]] = defaultdict(list)
    for row in run.rows:
        step = next((s for s in row["steps"] if s["tool"]), None)
        result = None if step is None or step["is_error"] else _object_in(step["result"])
        if step is None or result is None:
            continue
        shown[step["tool"]] += 1
        named = set(map(str, arguments_of(step).values()))
        own = [o for o in _objects(row["scenario"] or {}) if o.keys() == result.keys()]
        same = [o for o in own if any(o[k] == v and str(v) in named for k, v in result.items())]
        if same and result not in own and _text(result) in everything:
            wrong[step["tool"]].append((row, result))
    for tool, found in wrong.items():
        if len(found) >= ENOUGH_FOREIGN and len(found) / shown[tool] > FOREIGN:
            row, result = found[-1]
            yield Finding(
                name="foreign_results",
                weight="serious",
                title=f"The tool {tool} shows the data of other scenarios",
                evidence=f"{len(found)} of its {shown[tool]} first results contradict the data of "
                f"their own scenario, and are those of another one: {short(_text(result))}",
                reason="What is right follows from data that the policy is not shown.",
                change=f"the env's {tool}: no cache or table that episodes share, unless its key "
                "names the scenario",
                certainty=0.95,
                example=place(row),
            )


def _objects(data: Any) -> Iterator[dict[str, Any]]:
    """Yield each object with at least three keys in a scenario's data."""
    if isinstance(data, dict):
        if len(data) > 2:
            yield data
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from _objects(each)


def _object_in(result: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(str(result))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and len(found) > 2 else None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def acts_without_effect(run: Evidence) -> Iterator[Finding]:
    """Yield a finding for each action after which the env's output is the same as before.

    An action is a call with its arguments, or the last line of a turn without a call. Other actions
    must change the output, and the output must differ between uses, unlike a mere confirmation.
    """
    uses: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    after: dict[str, set[str]] = defaultdict(set)
    example: dict[str, Row] = {}
    for row in run.rows:
        before = (opening_of(row) or ("",))[-1]
        for step in row["steps"]:
            if step["result"] is None:
                continue
            act, now = _act(step), str(step["result"])
            uses[act] += 1
            idle[act] += now == before
            after[act].add(now)
            example[act], before = row, now
    known = [act for act, num in uses.items() if num >= ENOUGH_ACTS]
    for act in known:
        others = [a for a in known if a != act]
        num = sum(uses[a] for a in others)
        if (
            idle[act] / uses[act] > NEVER
            and len(after[act]) >= DIFFERENT
            and num >= ENOUGH_ACTS
            and sum(idle[a] for a in others) / num < OFTEN
        ):
            yield Finding(
                name="act_without_effect",
                weight="notable",
                title=f"The action {act} changes nothing",
                evidence=f"the env showed the same as before after {idle[act]} of its {uses[act]} "
                f"uses, and after {sum(idle[a] for a in others)} of {num} uses of other actions",
                reason="The env ignores it, or reads it as another one.",
                change="the env: play this action by hand where it is due",
                certainty=0.85,
                example=place(example[act]),
            )


def _act(step: dict[str, Any]) -> str:
    if step["tool"]:
        return short(f"{step['tool']}({_text(step.get('arguments') or {})})")
    lines = str(step.get("said") or "").strip().splitlines()
    return short(lines[-1]) if lines else ""


RULES = (results_cut, constant_results, results_vary, foreign_results, acts_without_effect)
