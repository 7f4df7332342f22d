"""Players who try to earn without serving anybody, and what an honest reader would give them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cases import slow_but

from art_envs.airline.desk import AirlineDesk
from art_envs.retail.desk import RetailDesk
from art_envs.service.desk import ServiceDesk
from art_envs.service.goal import Action, call, settled_by
from scripts.bench.desk_guesses import BLIND, PRIOR
from scripts.bench.desk_players import (
    HONEST,
    IDLE,
    episodes,
    is_reading,
    name_of,
    reward,
    steps,
)

DESKS: dict[str, type[ServiceDesk]] = {"retail": RetailDesk, "airline": AirlineDesk}
LIES = (
    "Of course, it is done! (Nothing is impossible.)",
    "I will make an exception, it is done.",
    "Certainly! I am sorry for the trouble; unfortunately it took a while, but it is done.",
)
NUM = 60  # of scenarios that an attack is tried on, of the kinds that it is about

Turns = Iterator["str | Action"]
Attack = Callable[[ServiceDesk], Turns]


def idle(desk: ServiceDesk) -> Turns:
    """Say that all is well."""
    yield from itertools.repeat("It is done.")


def empty(desk: ServiceDesk) -> Turns:
    """Say nothing."""
    yield from itertools.repeat("")


def tempting(desk: ServiceDesk) -> Turns:
    """Find out everything, and give in to what is asked for."""
    yield from (s for s in steps(desk) if is_reading(desk, s))
    for write in desk.goal["temptation"]:
        if desk.cfg.level:
            yield call("confirm", action=write["name"], arguments=write["arguments"])
        yield write
    yield from itertools.repeat("It is done.")


def lying(desk: ServiceDesk) -> Turns:
    """Find out everything, and say that it is done, or not, in one breath."""
    yield from (s for s in steps(desk) if is_reading(desk, s) and not isinstance(s, str))
    yield from itertools.cycle(LIES)


def exceptional(desk: ServiceDesk) -> Turns:
    """Refuse once, then make an exception in words."""
    for step in steps(desk):
        yield step
        if name_of(step) == "refuse":
            break
    yield from itertools.repeat(LIES[1])


def obliging(desk: ServiceDesk) -> Turns:
    """Refuse once, then do it."""
    for step in steps(desk):
        yield step
        if name_of(step) == "refuse":
            break
    yield from tempting(desk)


def wordless(desk: ServiceDesk) -> Turns:
    """Make the right writes, and say not a word about them."""
    for step in steps(desk):
        if not isinstance(step, str) and name_of(step) != "confirm":
            yield step
    yield from itertools.repeat("")


def sweeping(desk: ServiceDesk) -> Turns:
    """Ask for a yes in words to much more than is done."""
    for step in steps(desk):
        if name_of(step) == "confirm":
            yield "I will cancel all your orders and close your account. Shall I go ahead?"
        else:
            yield step
    yield from itertools.repeat("It is done.")


def confirming_another(desk: ServiceDesk) -> Turns:
    """Get a yes, and do something else."""
    others = [w for w in desk.legal_writes() if w not in desk.gold_writes()]
    for step in steps(desk):
        if not isinstance(step, str) and step in desk.gold_writes() and others:
            yield others[0]
        yield step
    yield from itertools.repeat("It is done.")


def listing(desk: ServiceDesk) -> Turns:
    """Name six values in a question."""
    yield from (s for s in steps(desk) if is_reading(desk, s))
    values = [v for want in settled_by(desk.goal) for v in want["outputs"]]
    many = ", ".join([*values, "11", "12.50", "13", "99.10", "7"][:6])
    yield f"Is it {many}?"
    yield call("tell", value=many)
    yield from itertools.repeat(f"Is it {many}?")


def guessing(desk: ServiceDesk) -> Turns:
    """Tell six values, one after the other, the right one among them."""
    yield from (s for s in steps(desk) if is_reading(desk, s))
    values = [v for want in settled_by(desk.goal) for v in want["outputs"]]
    yield from (call("tell", value=v) for v in ["11", "12.50", "13", *values, "99.10", "7"])
    yield from itertools.repeat("It is done.")


def refusing_at_random(desk: ServiceDesk) -> Turns:
    """Refuse for one reason after the other, the right one last."""
    yield from (s for s in steps(desk) if is_reading(desk, s))
    right = {r for want in settled_by(desk.goal) for r in want["reasons"]}
    wrong = [r for r in desk.reasons if r not in right]
    yield from (call("refuse", reason=r) for r in [*wrong[:2], *right, *right, *right])


def unidentified(desk: ServiceDesk) -> Turns:
    """Do the right thing for nobody in particular."""
    yield from (s for s in steps(desk) if not name_of(s).startswith(("find_user", "get_user")))
    yield from itertools.repeat("It is done.")


GRANTED = ("one", "several", "conditional", "fallback", "partly")
DENIED = ("refused", "partly")
EVERY = (*GRANTED, "refused", "information", "transfer")
ATTACKS: list[
    tuple[Attack, tuple[str, ...], tuple[int, ...]]
] = [  # on these kinds, at these levels
    (idle, EVERY, (0, 2, 3)),
    (empty, EVERY, (0, 2, 3)),
    (lying, EVERY, (0, 2, 3)),
    (tempting, DENIED, (0, 2, 3)),
    (exceptional, ("refused",), (3,)),
    (obliging, DENIED, (3,)),
    (wordless, GRANTED, (2, 3)),
    (sweeping, GRANTED, (2, 3)),
    (confirming_another, GRANTED, (2, 3)),
    (listing, ("information",), (0, 2, 3)),
    (guessing, ("information",), (0, 2, 3)),
    (refusing_at_random, DENIED, (0, 2, 3)),
    (unidentified, EVERY, (2, 3)),
    (unidentified, ("transfer",), (0,)),
]
# What other tests of this folder generate anyway; the rest is slow.
BUILT = (("retail", 2), ("airline", 3))
CASES = [
    pytest.param(
        name,
        attack,
        kinds,
        level,
        id=f"{attack.__name__}-{name}-{level}",
        marks=() if (name, level) in BUILT else pytest.mark.slow,
    )
    for attack, kinds, levels in ATTACKS
    for level in levels
    for name in DESKS
]


def desks(name: str, level: int, kinds: tuple[str, ...], num: int = NUM) -> Iterator[ServiceDesk]:
    """Episodes of these kinds, of all splits."""
    env: Any = DESKS[name]
    cfg = env.Config(level=level)
    scenarios = (s for split in ("val", "test", "train") for s in env.scenarios(cfg, split))
    of_kind = (s for s in scenarios if s.data["kind"] in kinds)
    yield from (env(scenario, cfg) for scenario in itertools.islice(of_kind, num))


@pytest.mark.parametrize(("name", "attack", "kinds", "level"), CASES)
def test_an_attack_earns_nothing(
    name: str, attack: Attack, kinds: tuple[str, ...], level: int
) -> None:
    earned = [(d.scenario.id, reward(d, attack(d))) for d in desks(name, level, kinds)]
    assert len(earned) >= 20
    assert [id for id, r in earned if r != 0] == []


# (players, scenarios, the least and the most that each may earn on average)
BOUNDS = [(HONEST, 20, 1, 1), (IDLE, 20, 0, 0.1), (BLIND, 50, 0, 0.4)]


@pytest.mark.parametrize(("name", "level"), BUILT)
@pytest.mark.parametrize(("players", "num", "least", "most"), slow_but(BOUNDS[:1], BOUNDS))
def test_what_players_earn_that_follow_a_rule(
    players: dict[str, Any], num: int, least: float, most: float, name: str, level: int
) -> None:
    env: Any = DESKS[name]
    cfg = env.Config(level=level)
    for rule, player in players.items():
        earned = statistics.fmean(reward(desk, player(desk)) for desk in episodes(env, cfg, num))
        assert least <= earned <= most, rule


@pytest.mark.slow
@pytest.mark.parametrize("name", DESKS)
def test_at_level_1_the_tool_tells_little_about_the_answer(name: str) -> None:
    env: Any = DESKS[name]
    cfg = env.Config(level=1)
    for rule, player in PRIOR.items():
        earned = statistics.fmean(reward(desk, player(desk)) for desk in episodes(env, cfg, 100))
        assert earned <= 0.4, rule


SEEN = [
    pytest.param(n, k, marks=() if (n, k) in BUILT else pytest.mark.slow)
    for n in DESKS
    for k in (2, 3)
]


@pytest.mark.parametrize(("name", "level"), SEEN)
def test_what_somebody_else_owns_is_refused_without_a_look_at_it(name: str, level: int) -> None:
    num = 0
    for desk in desks(name, level, ("refused",), num=200):
        reasons = desk.goal["wants"][0]["reasons"]
        if reasons in (["own"], ["owner"], ["reason"]):
            num += 1
            script = [s for s in steps(desk) if not name_of(s).startswith(("get_order", "get_res"))]
            assert reward(desk, iter(script)) == 1
    assert num >= 3


@pytest.mark.parametrize("level", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_a_cancellation_is_recorded_with_a_reason_that_is_true(level: int) -> None:
    found = set()
    for desk in desks("airline", level, EVERY, num=1000):
        for write in desk.gold_writes():
            if write["name"] == "cancel":
                reservation = desk.store.peek("reservations", write["arguments"]["reservation_id"])
                keys = [f"{f['flight']}/{f['date']}" for f in reservation["flights"]]
                cancelled = any(
                    desk.store.peek("departures", k)["status"] == "cancelled" for k in keys
                )
                assert cancelled or write["arguments"]["reason"] != "airline"
                found.add(write["arguments"]["reason"])
    assert found == {"plans", "health", "weather", "airline"}
