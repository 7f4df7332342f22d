"""The airline's policy as code, as a document, and the tools that know nothing of it."""

from typing import Any

import pytest

from art_cli.envs.base import ToolError
from art_envs.airline import actions
from art_envs.airline.database import CABINS, Extent, build, departure_id
from art_envs.airline.document import document, reasons
from art_envs.airline.policy import EXACTING, Case, broken_rules, compensation, rules_at
from art_envs.service.store import Store

BASE = build(0, Extent())
USER = "UA99"
HERE, THERE = {"flight": "F1", "date": "2025-06-18"}, {"flight": "F2", "date": "2025-06-19"}
ME = {"first": "Mia", "last": "Li", "born": "1990-01-02"}
YOU = {"first": "Tom", "last": "Li", "born": "1991-03-04"}


@pytest.fixture
def db() -> Store:
    """One customer with one reservation, SEA to JFK in economy for two, and two flights."""
    store = Store(BASE)
    payments = {
        "card1": {"kind": "card", "cents": None},
        "card2": {"kind": "card", "cents": None},
        "gift1": {"kind": "gift", "cents": 5000},
        "cert1": {"kind": "cert", "cents": 30000},
        "cert2": {"kind": "cert", "cents": 30000},
    }
    user = {**ME, "tier": "regular", "payments": payments, "companions": [YOU]}
    store.add("users", USER, {**user, "reservations": ["R1"]})
    times = {"departs": "08:00", "arrives": "12:00"}
    for flight in (HERE, THERE):
        store.add("flights", flight["flight"], {"origin": "SEA", "destination": "JFK", **times})
        prices = {"basic": 6000, "economy": 12000, "business": 30000}
        departure = {"status": "on time", "seats": dict.fromkeys(CABINS, 3), "prices": prices}
        store.add("departures", departure_id(**_key(flight)), departure)
    store.add(
        "reservations",
        "R1",
        {
            "user": USER,
            "origin": "SEA",
            "destination": "JFK",
            "trip": "one_way",
            "cabin": "economy",
            "flights": [{**HERE, "origin": "SEA", "destination": "JFK", "cents": 10000}],
            "passengers": [ME, YOU],
            "payments": [{"id": "gift1", "cents": 20000}],
            "created": "2025-06-01T10:00",
            "bags": 2,
            "paid_bags": 0,
            "insurance": False,
            "status": "active",
        },
    )
    return store


def _key(flight: dict[str, str]) -> dict[str, str]:
    return {"flight": flight["flight"], "day": flight["date"]}


def broken(db: Store, tool: str, level: int = 0, **args: Any) -> str | None:
    """The name of the first rule that a write breaks."""
    case = Case(db=db, user_id=USER, tool=tool, args=args, about="R1", level=level)
    rules = broken_rules(case)
    return rules[0].name if rules else None


def status(db: Store, value: str) -> None:
    """What became of the reservation's flight."""
    db.edit("departures", departure_id(**_key(HERE)))["status"] = value


@pytest.mark.parametrize(
    ("changes", "flight", "reason", "expected"),
    [
        ({}, "on time", "plans", "cancel"),
        ({}, "delayed", "health", "cancel"),
        ({"created": "2025-06-14T16:00"}, "on time", "plans", None),
        ({"created": "2025-06-14T14:00"}, "on time", "plans", "cancel"),
        ({}, "cancelled", "airline", None),
        ({}, "on time", "airline", "cancel"),
        ({"cabin": "business"}, "on time", "plans", None),
        ({"insurance": True}, "on time", "weather", None),
        ({"insurance": True}, "on time", "plans", "cancel"),
        ({"cabin": "business"}, "landed", "plans", "flown"),
        ({"insurance": True}, "flying", "health", "flown"),
        ({"user": "other"}, "cancelled", "airline", "own"),
    ],
)
def test_who_may_cancel(
    db: Store, changes: dict, flight: str, reason: str, expected: str | None
) -> None:
    db.edit("reservations", "R1").update(changes)
    status(db, flight)
    assert broken(db, "cancel", reservation_id="R1", reason=reason) == expected


@pytest.mark.parametrize(
    ("was", "cabin", "flights", "payment", "expected"),
    [
        ("economy", "economy", [THERE], "card1", None),
        ("economy", "business", [HERE], "gift1", None),
        ("basic", "economy", [HERE], "card1", None),
        ("basic", "basic", [THERE], "card1", "basic"),
        ("economy", "economy", [{"flight": "other", "date": "2025-06-18"}], "card1", "route"),
        ("economy", "economy", [THERE], "cert1", "method"),
    ],
)
def test_how_flights_may_change(
    db: Store, was: str, cabin: str, flights: list, payment: str, expected: str | None
) -> None:
    db.add("flights", "other", {"origin": "SEA", "destination": "MIA"})
    db.edit("reservations", "R1")["cabin"] = was
    args = {"cabin": cabin, "flights": flights, "payment_id": payment}
    assert broken(db, "change_flights", reservation_id="R1", **args) == expected


@pytest.mark.parametrize(
    ("tier", "bags", "paid", "expected"),
    [
        ("regular", 3, 1, None),
        ("regular", 3, 0, "free"),
        ("regular", 3, 2, "free"),
        ("silver", 4, 0, None),
        ("gold", 7, 1, None),
        ("gold", 1, 0, "bags"),
    ],
)
def test_which_bags_are_free(
    db: Store, tier: str, bags: int, paid: int, expected: str | None
) -> None:
    db.edit("users", USER)["tier"] = tier
    args = {"bags": bags, "paid_bags": paid, "payment_id": "card1"}
    assert broken(db, "change_bags", reservation_id="R1", **args) == expected


@pytest.mark.parametrize(
    ("tier", "changes", "flight", "expected"),
    [
        ("regular", {}, "cancelled", 0),
        ("silver", {}, "cancelled", 200_00),
        ("gold", {}, "delayed", 100_00),
        ("gold", {}, "on time", 0),
        ("regular", {"insurance": True}, "delayed", 100_00),
        ("regular", {"cabin": "business"}, "cancelled", 200_00),
    ],
)
def test_what_is_compensated(
    db: Store, tier: str, changes: dict, flight: str, expected: int
) -> None:
    db.edit("users", USER)["tier"] = tier
    db.edit("reservations", "R1").update(changes)
    status(db, flight)
    case = Case(db=db, user_id=USER, tool="send_certificate", args={}, about="R1")
    assert compensation(case) == expected
    args = {"user_id": USER, "amount": 100}
    assert broken(db, "send_certificate", **args) == (
        None if expected == 100_00 else "compensation"
    )


@pytest.mark.parametrize(
    ("num", "payments", "expected"),
    [
        (5, ["cert1", "card1"], None),
        (6, ["card1"], "passengers"),
        (1, ["cert1", "cert2"], "payments"),
        (1, ["card1", "card2"], "payments"),
    ],
)
def test_what_may_be_booked(db: Store, num: int, payments: list[str], expected: str | None) -> None:
    args = {
        "user_id": USER,
        "cabin": "business",
        "passengers": [ME] * num,
        "payments": [{"id": i, "amount": 1} for i in payments],
        "bags": 1,
        "paid_bags": 0,
    }
    assert broken(db, "book", **args) == expected


@pytest.mark.parametrize(
    ("was", "cabin", "tier", "flight", "expected"),
    [
        ("business", "economy", "regular", "on time", "lower"),
        ("economy", "basic", "silver", "on time", "lower"),
        ("economy", "basic", "gold", "on time", None),
        ("business", "basic", "regular", "delayed", None),
        ("economy", "basic", "regular", "cancelled", None),
        ("basic", "economy", "regular", "on time", None),
        ("economy", "economy", "regular", "on time", None),
    ],
)
def test_who_may_fly_in_a_lower_cabin(
    db: Store, was: str, cabin: str, tier: str, flight: str, expected: str | None
) -> None:
    db.edit("users", USER)["tier"] = tier
    db.edit("reservations", "R1")["cabin"] = was
    status(db, flight)
    args = {"cabin": cabin, "flights": [HERE], "payment_id": "card1"}
    asked = {"reservation_id": "R1", **args}
    assert broken(db, "change_flights", level=EXACTING, **asked) == expected
    assert broken(db, "change_flights", level=EXACTING - 1, **asked) is None


@pytest.mark.parametrize(
    ("cabin", "days", "expected"),
    [
        ("economy", ("2025-06-22",), None),
        ("economy", ("2025-06-23",), "far"),
        ("economy", ("2025-06-14",), None),
        ("economy", ("2025-06-13",), "far"),
        ("business", ("2025-06-23",), None),
        ("economy", ("2025-06-18", "2025-06-23"), "far"),
        ("economy", ("2025-06-22", "2025-06-22"), None),
    ],
)
def test_how_far_a_flight_may_be_moved(
    db: Store, cabin: str, days: tuple[str, ...], expected: str | None
) -> None:
    """Of a journey with one flight a way, booked for the 18th, or for the 18th and back."""
    for day in {"2025-06-18", *days} - {HERE["date"]}:
        db.add("departures", departure_id("F1", day), {"status": "on time"})
    booked = db.edit("reservations", "R1")
    booked["cabin"] = cabin
    booked["flights"] = [dict(f, date="2025-06-18") for f in booked["flights"] * len(days)]
    flights = [{"flight": "F1", "date": day} for day in days]
    args = {"reservation_id": "R1", "cabin": cabin, "flights": flights, "payment_id": "card1"}
    assert broken(db, "change_flights", level=EXACTING, **args) == expected
    assert broken(db, "change_flights", level=EXACTING - 1, **args) is None


@pytest.mark.parametrize(
    ("changes", "people", "expected"),
    [
        ({"cabin": "basic"}, [YOU, YOU], "names"),
        ({"cabin": "basic"}, [YOU, ME], None),
        ({"cabin": "basic", "insurance": True}, [YOU, YOU], None),
        ({"cabin": "economy"}, [YOU, YOU], None),
    ],
)
def test_who_may_be_replaced(
    db: Store, changes: dict, people: list[Any], expected: str | None
) -> None:
    db.edit("reservations", "R1").update(changes)
    args = {"reservation_id": "R1", "passengers": people}
    assert broken(db, "change_passengers", level=EXACTING, **args) == expected
    assert broken(db, "change_passengers", level=EXACTING - 1, **args) is None


@pytest.mark.parametrize(
    ("cabin", "bags", "expected"),
    [("basic", 4, None), ("basic", 5, "most"), ("economy", 6, None), ("business", 9, "most")],
)
def test_how_many_bags_there_may_be(db: Store, cabin: str, bags: int, expected: str | None) -> None:
    db.edit("users", USER)["tier"] = "gold"
    db.edit("reservations", "R1")["cabin"] = cabin
    free = {"basic": 4, "economy": 6, "business": 8}[cabin]
    args = {"reservation_id": "R1", "bags": bags, "paid_bags": max(0, bags - free)}
    assert broken(db, "change_bags", level=EXACTING, payment_id="card1", **args) == expected
    assert broken(db, "change_bags", level=EXACTING - 1, payment_id="card1", **args) is None
    new = booking(cabin=cabin, passengers=[ME, YOU], bags=bags, paid_bags=args["paid_bags"])
    assert broken(db, "book", level=EXACTING, **new) == expected


@pytest.mark.parametrize("level", [0, EXACTING])
def test_the_document_holds_every_rule_and_its_numbers(level: int) -> None:
    text = document("full", level)
    rules = rules_at(level)
    assert all(f"{rule.name}: {rule.text}" in text for rule in rules)
    assert text.count("\n- ") >= len(rules) and len(rules) == (11 if level == 0 else 15)
    assert reasons("full", level) == {rule.name: rule.text for rule in rules}
    assert reasons("small", level) == reasons("full", 0)
    for part in ("24 hours", "50 dollars each", "100 dollars for each passenger", "3 gift cards"):
        assert part in text
    assert len(document("small", level)) < len(text) / 3


def booking(**changes: Any) -> dict[str, Any]:
    """The arguments of a booking for one, at 120 dollars."""
    return {
        "user_id": USER,
        "origin": "SEA",
        "destination": "JFK",
        "trip": "one_way",
        "cabin": "economy",
        "flights": [HERE],
        "passengers": [ME],
        "payments": [{"id": "card1", "amount": 120}],
        "bags": 0,
        "paid_bags": 0,
        "insurance": False,
        **changes,
    }


def test_a_booking_takes_seats_and_money(db: Store) -> None:
    payments = [{"id": "cert1", "amount": 100.0}, {"id": "gift1", "amount": 50}]
    made = actions.book(db, **booking(payments=payments, insurance=True))
    user = db.peek("users", USER)
    assert made in user["reservations"]
    assert (user["payments"]["cert1"]["cents"], user["payments"]["gift1"]["cents"]) == (0, 0)
    assert db.peek("departures", departure_id(**_key(HERE)))["seats"]["economy"] == 2
    assert db.peek("reservations", made)["payments"][0] == {"id": "cert1", "cents": 10000}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"user_id": "nobody"}, "no user 'nobody'"),
        ({"flights": [{"flight": "F9", "date": "2025-06-18"}]}, "no flight 'F9'"),
        ({"flights": [{"flight": "F1", "date": "18 June"}]}, "no departure on '18 June'"),
        ({"flights": []}, "needs a passenger and a flight"),
        ({"passengers": [ME] * 4}, "3 seats in economy; 4 are needed"),
        ({"destination": "MIA"}, "not a one_way journey from SEA to MIA"),
        ({"flights": [HERE, THERE]}, "one cannot change from F1 to F2"),
        ({"payments": [{"id": "card1", "amount": 119.99}]}, "the price is 120"),
        ({"payments": [{"id": "card9", "amount": 120}]}, "no payment method 'card9'"),
        ({"payments": [{"id": "gift1", "amount": 120}]}, "gift1 has 50 left; 120 are needed"),
        ({"payments": [{"id": "card1", "amount": -1}]}, "not an amount"),
        ({"bags": 1, "paid_bags": 2}, "2 of 1 bags"),
    ],
)
def test_what_cannot_be_booked_is_refused_in_words(db: Store, changes: dict, error: str) -> None:
    before = db.changes()
    with pytest.raises(ToolError, match=error):
        actions.book(db, **booking(**changes))
    assert db.changes() == before


def test_a_flight_that_stays_keeps_its_price(db: Store) -> None:
    assert actions.change_flights(db, "R1", "economy", [HERE], "card1") == 0
    assert actions.change_flights(db, "R1", "economy", [THERE], "card1") == 2 * 2000
    assert actions.change_flights(db, "R1", "business", [THERE], "card1") == 2 * 18000
    assert db.peek("departures", departure_id(**_key(HERE)))["seats"]["economy"] == 5
    assert db.peek("departures", departure_id(**_key(THERE)))["seats"] == {
        "basic": 3,
        "economy": 3,
        "business": 1,
    }


def test_a_cancellation_pays_back_and_is_done_once(db: Store) -> None:
    assert actions.cancel(db, "R1", "plans") == 20000
    assert db.peek("users", USER)["payments"]["gift1"]["cents"] == 25000
    for write in (
        lambda: actions.cancel(db, "R1", "plans"),
        lambda: actions.change_bags(db, "R1", 3, 1, "card1"),
        lambda: actions.change_passengers(db, "R1", [ME, ME]),
    ):
        with pytest.raises(ToolError, match="R1 is cancelled"):
            write()


def test_other_physical_limits(db: Store) -> None:
    with pytest.raises(ToolError, match="2 seats, but 1 passengers"):
        actions.change_passengers(db, "R1", [ME])
    with pytest.raises(ToolError, match="gift1 has 50 left; 100 are needed"):
        actions.change_bags(db, "R1", 4, 2, "gift1")
    with pytest.raises(ToolError, match="worth more than nothing"):
        actions.send_certificate(db, USER, 0)
    status(db, "cancelled")
    with pytest.raises(ToolError, match="is cancelled"):
        actions.change_flights(db, "R1", "business", [HERE], "card1")
