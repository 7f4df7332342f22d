"""Check that calls return in time and do not block other episodes.

Each finding is played again, alone: effects of a busy machine do not recur.
"""

from __future__ import annotations

from collections.abc import Iterator

from art_cli.preflight.check_result import (
    CheckResults,
    failed,
    ok,
    place_of,
    warning,
    where_and_what,
)
from art_cli.preflight.envs.play import Played
from art_cli.preflight.envs.subject import Subject
from art_cli.preflight.envs.watch import Stall
from art_cli.system.deadline import DeadlineError

TOO_LONG = 0.5  # share of a deadline that counts as near it
REPEATS = 2  # plays in which a fault must recur


def check_deadlines(s: Subject) -> CheckResults:
    """Check that every call returns in time and does not block other episodes."""
    env_class = s.env_class
    plays = [p for found in s.plays.values() for p in found]
    yield from _late(s)
    slowest: dict[str, tuple[float, Played]] = {}
    for p in (p for p in plays if not p.is_late):
        for name, seconds in p.slowest.items():
            slowest[name] = max(slowest.get(name, (0.0, p)), (seconds, p), key=lambda x: x[0])
    for name, (seconds, p) in slowest.items():
        limit = env_class.tool_timeout if name.startswith("tool") else env_class.episode_timeout
        if seconds > TOO_LONG * limit:
            again = s.play(p.trajectory.scenario, p.repeater).slowest.get(name, 0.0)
            if (seconds := min(seconds, again)) > TOO_LONG * limit:
                what = f"{name} took {seconds:.1f} s of the {limit:g} s that it may"
                method = name.removeprefix("tool ").removesuffix("()")
                yield warning(what, place_of(env_class, method))
    for stall in _stalls(s):
        what = f"{stall.function} held up all other episodes for {stall.seconds:.1f} s"
        todo = "an async def must not block: make it a plain def (it then runs in a thread)"
        yield failed(what, stall.where, todo)
    top = sorted(((name, x[0]) for name, x in slowest.items()), key=lambda pair: -pair[1])[:1]
    yield ok(f"the slowest call was {top[0][0]}, {top[0][1]:.3f} s" if top else "nothing was slow")


def _late(s: Subject) -> CheckResults:
    """Yield a result for each method that missed a deadline, up to the first that always does."""
    seen: set[str] = set()
    for p in list(s.late):
        if p.during in seen or p.error is None:
            continue
        seen.add(p.during)
        place, what = where_and_what(p.error, s.env_class)
        what = str(p.error) if isinstance(p.error, DeadlineError) else what
        where = place or place_of(s.env_class, p.during)
        again = [s.play(p.trajectory.scenario, p.repeater) for _ in range(REPEATS)]
        if all(q.is_late for q in again) and not all(q.was_starved for q in (p, *again)):
            yield failed(what, where, "wait for less, or raise the env's deadline")
            return
        in_time = sum(not q.is_late for q in again)
        more = f"; played again, it was in time {in_time} of {REPEATS} times"
        busy = " (the machine was busy)" if p.was_starved else ""
        yield warning(f"{what}{more}{busy}", where, "check once more when the machine is idle")


def _stalls(s: Subject) -> Iterator[Stall]:
    """Yield each function that blocks the event loop in every replay of its episode."""
    seen: set[str] = set()
    for p in list(s.stalled):
        if not (new := p.stalls.keys() - seen):
            continue
        seen |= new
        again = [s.play(p.trajectory.scenario, p.repeater).stalls for _ in range(REPEATS)]
        for name in sorted(new):
            if all(name in stalls for stalls in again):
                found = [p.stalls[name], *(stalls[name] for stalls in again)]
                yield min(found, key=lambda stall: stall.seconds)
