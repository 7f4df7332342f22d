"""Checks that play: no answer breaks the env, nothing but the answers decides what happens."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from art_cli.envs.base import NoServicesError
from art_cli.preflight.envs.instances import content
from art_cli.preflight.envs.other import play_elsewhere
from art_cli.preflight.envs.play import NotCalledError, Played
from art_cli.preflight.envs.players import GoldError, call_text
from art_cli.preflight.envs.state import changed, generators, snapshot
from art_cli.preflight.envs.subject import NUM_REPLAYED, Subject
from art_cli.preflight.finding import (
    Finding,
    Findings,
    failed,
    ok,
    place_of,
    skipped,
    warning,
    where_and_what,
)
from art_cli.rollout.agents.scripted import Player
from art_cli.system.deadline import DeadlineError
from art_cli.types import Message, Scenario

ODD_TEXTS = (
    *("", " ", "\x00", "-1", "1e999", "NaN", "٣", "a" * 100_000, "🦀" * 1000, "\u202e\u200b"),
    *("<tool_call>", "<tool_call>{}</tool_call>", '{"a": [', "</s><|im_end|>", "%s {0} \\"),
)
ODD_VALUES = ("", "a" * 100_000, "\x00🦀", -1, 10**30, 0.5, True, None, [], {"a": [None]})
TOO_LONG = 0.5  # share of a deadline that is near it
SHORT_STALL = 1.0  # seconds; one that happens once may be an import
AT_ONCE = 32  # episodes
NO_PLAYS = "no episode could be played to its end"
CAPACITY = re.compile(  # what servers say that have no room for another episode
    r"capacity|too many|max(imum)?[ _-]?(concurren|session|connection|client)|concurrent|at once"
    r"|overload|busy|exhausted|rate.?limit|quota|no (free|available) |\b(429|503)\b",
    re.I,
)
NO_FAULT = DeadlineError, GoldError, NoServicesError, NotCalledError  # or another check's matter
FAULTS = AttributeError, LookupError, NameError, TypeError  # of the env's own code
FEWER = "say how many may be open at once, in a config: env: {concurrency: 1}; check that config"


class Barrage(Player):
    """Says what is left of a list that several episodes work off."""

    def __init__(self, left: list[str]) -> None:
        super().__init__()
        self._left = left

    def answer(self, messages: list[Message]) -> str:
        return self._left.pop(0) if self._left else ""


def check_episodes(s: Subject) -> Findings:
    """Idle, random and perfect players get to the end, and to a score."""
    plays = [p for found in s.plays.values() for p in found]
    if all(isinstance(p.error, NoServicesError) for p in plays):
        todo = "let the setting that names the model be null, and do without one then"
        yield skipped("an episode asks a model, and there is none here", todo)
        return
    yield from errors_of(s, plays)
    for name, value in {k: v for p in plays for k, v in p.trajectory.metrics.items()}.items():
        if not math.isfinite(value) or not isinstance(name, str):
            yield failed(f"the metric {name!r} is {value}", place_of(s.env_class, "score"))
    unscored = sum(p.reward is None and p.error is None for p in plays)
    scores = f"{unscored} without a score of their own" if unscored else "each with a finite score"
    yield ok(f"{len(plays)} by {len(s.plays)} players, {scores}")


def check_bad_answers(s: Subject) -> Findings:
    """Bad arguments and odd texts become an observation, never an exception."""
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


def errors_of(s: Subject, plays: Sequence[Played], said: bool = False) -> Findings:
    """What the env raised, once for each place, but for deadlines, which have their own check."""
    seen: set[tuple[str, str]] = set()
    for p in plays:
        if p.error is None or isinstance(p.error, NO_FAULT):
            continue
        where, what = where_and_what(p.error, s.env_class)
        after = f", after {p.turns[-1]!r:.100}" if said and p.turns else ""
        key = where or place_of(s.env_class, p.during), what
        if key not in seen:
            seen.add(key)
            todo = "a wrong answer is answered, or raises ToolError in a tool" if said else ""
            yield failed(f"{what}{after}", key[0], todo)


def check_replay(s: Subject) -> Findings:
    """Return the same answers get the same replies and reward, here and in another process."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    again, drawn = s.again
    hint = f"it draws from the global {drawn[0]}; use self.rng" if drawn else "use self.rng"
    differences = list(_differences(s, [p.outcome() for p in again], "the second time", hint))
    yield from differences
    if differences:
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
    yield from _differences(s, elsewhere.outcomes, "in another process", todo)
    yield ok(f"{len(s.alone)} episodes came out the same, in another process too")


def _differences(
    s: Subject, outcomes: Sequence[dict[str, Any]], when: str, todo: str
) -> Iterable[Finding]:
    """Return where outcomes are not those of the plays alone; the first of each method."""
    seen: set[str] = set()
    for played, outcome in zip(s.alone, outcomes, strict=True):
        name, what = _difference(played.outcome(), outcome)
        if what and name not in seen:
            seen.add(name)
            id = played.trajectory.scenario.id
            yield failed(f"{name}() of {id!r}: {what} {when}", place_of(s.env_class, name), todo)


def _difference(a: dict[str, Any], b: dict[str, Any]) -> tuple[str, str]:
    """Return (the method that differs, how); empty where nothing does."""
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


def check_randomness(s: Subject) -> Findings:
    """Nothing is drawn from generators that all episodes share, and the trainer with them."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    again, drawn = s.again
    differences = list(_differences(s, [p.outcome() for p in again], "the second time", ""))
    if drawn:
        what = f"playing changes the global generator of {' and of '.join(drawn)}, which all share"
        more = f", and goes by it: {differences[0].what}" if differences else ""
        where = differences[0].where if differences else place_of(s.env_class)
        todo = "draw from self.rng, and give a library a generator of its own"
        yield failed(f"{what}{more}", where, todo)
    yield ok(f"no global generator is drawn from ({', '.join(generators())})")


def check_concurrency(s: Subject) -> Findings:
    """Episodes that go on at the same time do not see each other."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    before, state = snapshot(s.env_class), {}
    for p in s.alone[:NUM_REPLAYED]:  # of different scenarios, which leave different things behind
        s.play(p.trajectory.scenario, p.repeater)
        state |= changed(s.env_class, before)
    times = -(-AT_ONCE // len(s.alone))
    shared = {p.trajectory.scenario.id: copy.deepcopy(p.trajectory.scenario) for p in s.alone}
    scenarios: list[Scenario] = [shared[p.trajectory.scenario.id] for p in s.alone]
    together = s.play_together(scenarios * times, [p.repeater for p in s.alone] * times)
    written = next((p for p in s.alone if p.data_changed), None)
    state |= changed(s.env_class, before)
    todo = "keep all state in self"
    if written:
        what = f"an episode wrote to the data of its scenario {written.trajectory.scenario.id!r}"
        copied = "copy what is changed: copy.deepcopy(scenario.data[...])"
        where = place_of(s.env_class, "__init__")
        yield failed(f"{what}, which its siblings share", where, copied)
    leaks: list[Finding] = []
    refused = [p for p in together if _is_refused(p)]
    for i in range(times):
        part = together[i * len(s.alone) : (i + 1) * len(s.alone)]
        outcomes = [
            (alone if _is_refused(p) else p).outcome()
            for alone, p in zip(s.alone, part, strict=True)
        ]
        leaks = leaks or list(_differences(s, outcomes, "among others", todo))
    if refused:
        what = f"{len(refused)} of {len(together)} episodes at once were refused"
        yield warning(f"{what}: {str(refused[0].error)[:200]!r}", "", FEWER)
    yield from leaks
    for name, where in state.items():
        found = failed if leaks else warning
        yield found(f"{name} changed while episodes were played; they all share it", where, todo)
    yield ok(f"{len(together)} at once came out as each alone")


def _is_refused(p: Played) -> bool:
    """Return whether a server had no room for an episode, which is no state among others."""
    if p.during != "start" or isinstance(p.error, (*FAULTS, type(None))):
        return False
    return CAPACITY.search(f"{type(p.error).__name__}: {p.error}") is not None


def check_deadlines(s: Subject) -> Findings:
    """Return every call returns in time, and none holds up the others."""
    plays = [p for found in s.plays.values() for p in found]
    env_class = s.env_class
    slowest: dict[str, float] = {}
    for p in plays:
        if isinstance(p.error, DeadlineError):
            where = place_of(env_class, p.during)
            yield failed(str(p.error), where, "wait for less, or raise the env's deadline")
            break
        slowest |= {k: max(v, slowest.get(k, 0.0)) for k, v in p.slowest.items()}
    for name, seconds in slowest.items():
        limit = env_class.tool_timeout if name.startswith("tool") else env_class.episode_timeout
        if seconds > TOO_LONG * limit:
            what = f"{name} took {seconds:.1f} s of the {limit:g} s that it may"
            method = name.removeprefix("tool ").removesuffix("()")
            yield warning(what, place_of(env_class, method))
    for stall in s.watch.stalls.values():
        if stall.times > 1 or stall.seconds > SHORT_STALL:
            what = f"{stall.function} held up all other episodes for {stall.seconds:.1f} s"
            todo = "an async def must not block: make it a plain def (it then runs in a thread)"
            yield failed(what, stall.where, todo)
    top = sorted(slowest.items(), key=lambda pair: -pair[1])[:1]
    yield ok(f"the slowest call was {top[0][0]}, {top[0][1]:.3f} s" if top else "nothing was slow")
