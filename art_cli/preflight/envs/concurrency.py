"""Check that concurrent episodes do not affect each other.

A difference is reported only after a second try: a busy machine delays episodes, and an env may put
the delay into its answers.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from art_cli.preflight.check_result import (
    CheckResult,
    CheckResults,
    failed,
    ok,
    place_of,
    skipped,
    warning,
)
from art_cli.preflight.envs.episodes import NO_PLAYS, differences
from art_cli.preflight.envs.play import Played
from art_cli.preflight.envs.state import changed, snapshot
from art_cli.preflight.envs.subject import NUM_REPLAYED, Subject
from art_cli.types import Scenario

AT_ONCE = 32  # episodes
FEW = 2  # episodes played at once to confirm a lateness
CAPACITY = re.compile(  # messages of servers without room for another episode
    r"capacity|too many|max(imum)?[ _-]?(concurren|session|connection|client)|concurrent|at once"
    r"|overload|busy|exhausted|rate.?limit|quota|no (free|available) |\b(429|503)\b",
    re.I,
)
FAULTS = AttributeError, LookupError, NameError, TypeError  # errors of the env's own code
FEWER = "limit the open episodes in a config: env: {concurrency: 1}; then check that config"
LATER = f"{FEWER}; or give the env's deadline more time"
STATE = "keep all state in self"


def check_concurrency(s: Subject) -> CheckResults:
    """Check that concurrent episodes do not affect each other."""
    if not s.alone:
        yield skipped(NO_PLAYS)
        return
    before, state = snapshot(s.env_class), {}
    for p in s.alone[:NUM_REPLAYED]:  # scenarios differ in the state that they change
        s.play(p.trajectory.scenario, p.repeater)
        state |= changed(s.env_class, before)
    together = _play_together(s)
    written = next((p for p in s.alone if p.data_changed), None)
    state |= changed(s.env_class, before)
    if written:
        what = f"an episode wrote to the data of its scenario {written.trajectory.scenario.id!r}"
        copied = "copy what is changed: copy.deepcopy(scenario.data[...])"
        where = place_of(s.env_class, "__init__")
        yield failed(f"{what}, which its siblings share", where, copied)
    if refused := [p for p in together if _is_refused(p)]:
        what = f"{len(refused)} of {len(together)} episodes at once were refused"
        yield warning(f"{what}: {str(refused[0].error)[:200]!r}", "", FEWER)
    if late := [i for i, p in enumerate(together) if p.is_late and not _is_refused(p)]:
        yield _lateness(s, together, late)
    leaks = _leaks(s, together)
    if leaks:  # play again: effects of chance or a busy machine do not recur
        recurring = {f.where for f in _leaks(s, _play_together(s))}
        once = [f for f in leaks if f.where not in recurring]
        leaks = [f for f in leaks if f.where in recurring]
        for f in once:
            yield warning(f"{f.what}, once in two times: chance, or a busy machine", f.where, STATE)
    yield from leaks
    for name, where in state.items():
        found = failed if leaks else warning
        yield found(f"{name} changed while episodes were played; they all share it", where, STATE)
    yield ok(f"{len(together)} at once came out as each alone")


def _play_together(s: Subject) -> list[Played]:
    """Play each episode of `alone` several times, all at once."""
    times = -(-AT_ONCE // len(s.alone))
    shared = {p.trajectory.scenario.id: copy.deepcopy(p.trajectory.scenario) for p in s.alone}
    scenarios: list[Scenario] = [shared[p.trajectory.scenario.id] for p in s.alone]
    return s.play_together(scenarios * times, [p.repeater for p in s.alone] * times)


def _leaks(s: Subject, together: Sequence[Played]) -> list[CheckResult]:
    """Return differences between episodes and the same ones alone, except late or refused ones."""
    num = len(s.alone)
    for i in range(0, len(together), num):
        outcomes: list[dict[str, Any]] = [
            (alone if _is_refused(p) else p).outcome()
            for alone, p in zip(s.alone, together[i : i + num], strict=True)
        ]
        if found := list(differences(s, outcomes, "among others", STATE)):
            return found
    return []


def _lateness(s: Subject, together: Sequence[Played], late: Sequence[int]) -> CheckResult:
    """Return the result for episodes that missed a deadline only when played with others.

    A busy machine is slow with many episodes, but not with one or two. An env whose episodes wait
    for each other is late with two episodes and in time with one.
    """
    first = together[late[0]]
    what = f"{len(late)} of {len(together)} episodes at once missed a deadline: {first.error}"
    where = place_of(s.env_class, first.during)
    again = [s.alone[i % len(s.alone)] for i in late[:1]] * FEW
    shared = [copy.deepcopy(p.trajectory.scenario) for p in again]
    few = s.play_together(shared, [p.repeater for p in again])
    alone = s.play(again[0].trajectory.scenario, again[0].repeater)
    if any(p.is_late for p in few) and not alone.is_late:
        more = f"; {FEW} at once missed it too, and one alone did not"
        return failed(what + more, where, "episodes wait for each other: share no lock")
    return warning(what, where, LATER)


def _is_refused(p: Played) -> bool:
    """Return whether a server had no room for the episode, which is not shared state."""
    if p.during != "start" or isinstance(p.error, (*FAULTS, type(None))):
        return False
    return CAPACITY.search(f"{type(p.error).__name__}: {p.error}") is not None
