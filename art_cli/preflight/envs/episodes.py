"""Checks that play episodes: robustness against bad answers, and determinism."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from art_cli.envs.base import NoServicesError
from art_cli.preflight.check_result import (
    CheckResult,
    CheckResults,
    failed,
    ok,
    place_of,
    skipped,
    where_and_what,
)
from art_cli.preflight.envs.instances import content
from art_cli.preflight.envs.other import play_elsewhere
from art_cli.preflight.envs.play import NotCalledError, Played, is_late
from art_cli.preflight.envs.players import GoldError, call_text
from art_cli.preflight.envs.state import generators
from art_cli.preflight.envs.subject import Subject
from art_cli.rollout.agents.scripted import Player
from art_cli.types import Message

ODD_TEXTS = (
    *("", " ", "\x00", "-1", "1e999", "NaN", "٣", "a" * 100_000, "🦀" * 1000, "\u202e\u200b"),
    *("<tool_call>", "<tool_call>{}</tool_call>", '{"a": [', "</s><|im_end|>", "%s {0} \\"),
)
ODD_VALUES = ("", "a" * 100_000, "\x00🦀", -1, 10**30, 0.5, True, None, [], {"a": [None]})
NO_PLAYS = "no episode could be played to its end"
NO_FAULT = GoldError, NoServicesError, NotCalledError  # or reported by another check


class Barrage(Player):
    """Player that takes its turns from a list, which several episodes use up."""

    def __init__(self, left: list[str]) -> None:
        super().__init__()
        self._left = left

    def answer(self, messages: list[Message]) -> str:
        return self._left.pop(0) if self._left else ""


def check_episodes(s: Subject) -> CheckResults:
    """Check that idle, random and perfect players reach the end and get a score."""
    plays = [p for found in s.plays.values() for p in found]
    if all(isinstance(p.error, NoServicesError) for p in plays):
        todo = "allow null for the setting that names the model, and work without a model then"
        yield skipped("an episode calls a model, and none is available here", todo)
        return
    yield from errors_of(s, plays)
    for name, value in {k: v for p in plays for k, v in p.trajectory.metrics.items()}.items():
        if not math.isfinite(value) or not isinstance(name, str):
            yield failed(f"the metric {name!r} is {value}", place_of(s.env_class, "score"))
    unscored = sum(p.reward is None and p.error is None for p in plays)
    scores = f"{unscored} without a score of their own" if unscored else "each with a finite score"
    yield ok(f"{len(plays)} by {len(s.plays)} players, {scores}")


def check_bad_answers(s: Subject) -> CheckResults:
    """Check that bad arguments and odd texts yield an observation, never an exception."""
    if not s.chosen or not s.alone:
        yield skipped(NO_PLAYS)
        return
    left = [*ODD_TEXTS, *_bad_calls(s.alone[0].trajectory.tools)]
    num, plays = len(left), []
    while left:
        plays.append(s.play(s.chosen[0], lambda env: Barrage(left)))
    yield from errors_of(s, plays, said=True)
    yield ok(f"{num} odd texts and wrong calls broke nothing")


def _bad_calls(tools: list[dict[str, Any]]) -> Iterable[str]:
    for function in (tool["function"] for tool in tools):
        name, arguments = function["name"], list(function["parameters"].get("properties", ()))
        yield call_text(name, {})
        yield call_text(name, {**dict.fromkeys(arguments, "1"), "no_such_argument": 1})
        yield from (call_text(name, dict.fromkeys(arguments, value)) for value in ODD_VALUES)
    yield call_text("no_such_tool", {})


def errors_of(s: Subject, plays: Sequence[Played], said: bool = False) -> CheckResults:
    """Yield the errors of the env, once for each place. Deadlines have their own check."""
    seen: set[tuple[str, str]] = set()
    for p in plays:
        if p.error is None or p.is_late or isinstance(p.error, NO_FAULT):
            continue
        where, what = where_and_what(p.error, s.env_class)
        after = f", after {p.turns[-1]!r:.100}" if said and p.turns else ""
        key = where or place_of(s.env_class, p.during), what
        if key not in seen:
            seen.add(key)
            todo = "a wrong answer is answered, or raises ToolError in a tool" if said else ""
            yield failed(f"{what}{after}", key[0], todo)


def check_replay(s: Subject) -> CheckResults:
    """Check that equal turns get equal replies and rewards, here and in another process."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    again, drawn = s.again
    hint = f"it draws from the global {drawn[0]}; use self.rng" if drawn else "use self.rng"
    found = list(differences(s, [p.outcome() for p in again], "the second time", hint))
    yield from found
    if found:
        return
    elsewhere = play_elsewhere(s.use, s.settings, s.alone, s.options)
    if isinstance(elsewhere, str):
        yield failed(f"in a process of its own: {elsewhere}", place_of(s.env_class))
        return
    todo = "the order of a set, hash() and the time differ between processes; sort, or use self.rng"
    for split, found in s.scenarios.items():
        if [content(x) for x in found] != elsewhere.scenarios[split]:
            what = f"the {split} scenarios are others in another process"
            yield failed(what, place_of(s.env_class, "scenarios"), todo)
    yield from differences(s, elsewhere.outcomes, "in another process", todo)
    yield ok(f"{len(s.alone)} episodes came out the same, in another process too")


def differences(
    s: Subject, outcomes: Sequence[dict[str, Any]], when: str, todo: str
) -> Iterable[CheckResult]:
    """Yield the differences of `outcomes` from those of `alone`, the first for each method.

    An episode that missed a deadline has its own check.
    """
    seen: set[str] = set()
    for played, outcome in zip(s.alone, outcomes, strict=True):
        if outcome["error"] and is_late(outcome["error"]):
            continue
        name, what = _difference(played.outcome(), outcome)
        if what and name not in seen:
            seen.add(name)
            id = played.trajectory.scenario.id
            yield failed(f"{name}() of {id!r}: {what} {when}", place_of(s.env_class, name), todo)


def _difference(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    """Return (method, description of the difference), or ("", "")."""
    for x, y in zip_longest(a["opening"], b["opening"]):
        if x != y:
            return "start", f"{_brief(x, 'content')} became {_brief(y, 'content')}"
    for x, y in zip_longest(a["steps"], b["steps"]):
        if x != y:
            return (x or y)[
                "tool"
            ] or "reply", f"{_brief(x, 'result')} became {_brief(y, 'result')}"
    for key in ("error", "stop_reason", "reward", "metrics", "judge_context"):
        if json.dumps(a[key]) != json.dumps(b[key]):
            name = "judge_context" if key == "judge_context" else "score"
            return name, f"{key} {a[key]!r:.80} became {b[key]!r:.80}"
    return "", ""


def _brief(found: dict[str, Any] | None, key: str) -> str:
    return "the end" if found is None or found[key] is None else f"{found[key]!r:.80}"


def check_randomness(s: Subject) -> CheckResults:
    """Check that the env uses no global generator, which all episodes and the trainer share."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    again, drawn = s.again
    found = list(differences(s, [p.outcome() for p in again], "the second time", ""))
    if drawn:
        what = f"playing changes the global generator of {' and of '.join(drawn)}, which all share"
        more = f", and goes by it: {found[0].what}" if found else ""
        where = found[0].where if found else place_of(s.env_class)
        todo = "draw from self.rng, and give a library a generator of its own"
        yield failed(f"{what}{more}", where, todo)
    yield ok(f"no global generator is drawn from ({', '.join(generators())})")
