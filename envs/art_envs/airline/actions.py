"""The tools' effects on the records. They check what is possible, never what the policy allows.

Each takes the store first and the tool's arguments by name, and raises ToolError where the world
does not permit it: an unknown id, no free seat, a balance that is too low.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, pairwise

from pydantic import ConfigDict
from typing_extensions import TypedDict

from art_cli import ToolError
from art_envs.airline.database import (
    BAG_CENTS,
    INSURANCE_CENTS,
    Cabin,
    Record,
    Trip,
    departure_id,
    in_time,
)
from art_envs.service.store import Store

BOOKABLE = ("on time", "delayed")


class FlightOn(TypedDict):
    """A flight on a day, as the tools take it."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    flight: str
    date: str


class Passenger(TypedDict):
    """The passenger."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    first: str
    last: str
    born: str


class Payment(TypedDict):
    """A part of the price, in dollars."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    id: str
    amount: float


def find(db: Store, table: str, key: str) -> Record:
    """Return a record to check. Raises ToolError where there is none."""
    try:
        return db.peek(table, key)
    except KeyError:
        raise ToolError(f"there is no {table.removesuffix('s')} {key!r}") from None


def cents(dollars: float) -> int:
    """Dollars as a tool takes them. Raises ToolError where they are no sum of money."""
    whole = round(dollars * 100)
    if abs(dollars * 100 - whole) > 1e-6 or whole < 0:
        raise ToolError(f"{dollars} is not an amount in dollars")
    return whole


def dollars(amount: int) -> int | float:
    """Cents as a tool shows them: 50 or 49.5."""
    return amount // 100 if amount % 100 == 0 else amount / 100


def book(
    db: Store,
    user_id: str,
    origin: str,
    destination: str,
    trip: Trip,
    cabin: Cabin,
    flights: list[FlightOn],
    passengers: list[Passenger],
    payments: list[Payment],
    bags: int,
    paid_bags: int,
    insurance: bool,
) -> str:
    """Reserve seats and take the payments, and return the new reservation's id."""
    user = find(db, "users", user_id)
    num = len(passengers)
    if not num or not flights:
        raise ToolError("a reservation needs a passenger and a flight")
    _check_bags(bags, paid_bags)
    booked = [_bookable(db, f, cabin, num) for f in flights]
    _check_journey(db, booked)
    ends = {f["destination"] for f in booked}
    last = booked[-1]["destination"]
    if booked[0]["origin"] != origin or last != (destination if trip == "one_way" else origin):
        raise ToolError(f"these flights are not a {trip} journey from {origin} to {destination}")
    if destination not in ends:
        raise ToolError(f"these flights do not reach {destination}")
    cost = price(booked, num, paid_bags, insurance)
    paid = [{"id": p["id"], "cents": cents(p["amount"])} for p in payments]
    total = sum(p["cents"] for p in paid)
    if total != cost:
        raise ToolError(f"the price is {dollars(cost)}, but the payments add up to {total / 100:g}")
    _charge(db, user_id, paid)
    _take_seats(db, booked, cabin, num)
    reservation_id = _new_id(user, user_id)
    record = {
        "user": user_id,
        "origin": origin,
        "destination": destination,
        "trip": trip,
        "cabin": cabin,
        "flights": booked,
        "passengers": [dict(p) for p in passengers],
        "payments": paid,
        "created": find(db, "desk", "now")["time"],
        "bags": bags,
        "paid_bags": paid_bags,
        "insurance": insurance,
        "status": "active",
    }
    db.add("reservations", reservation_id, record)
    db.edit("users", user_id)["reservations"].append(reservation_id)
    return reservation_id


def change_flights(
    db: Store, reservation_id: str, cabin: Cabin, flights: list[FlightOn], payment_id: str
) -> int:
    """Replace all flights of a reservation. Return what that cost in cents, negative for a refund.

    A flight that stays, in the same cabin, keeps its price.
    """
    old = _active(db, reservation_id)
    num = len(old["passengers"])
    kept = {(f["flight"], f["date"]): f for f in old["flights"] if cabin == old["cabin"]}
    if not flights:
        raise ToolError("a reservation needs a flight")
    new = [
        dict(kept[f["flight"], f["date"]])
        if (f["flight"], f["date"]) in kept
        else _bookable(db, f, cabin, num)
        for f in flights
    ]
    _check_journey(db, new)
    difference = (sum(f["cents"] for f in new) - sum(f["cents"] for f in old["flights"])) * num
    _settle(db, old["user"], payment_id, difference)
    stays = [f for f in new if (f["flight"], f["date"]) in kept]
    _take_seats(db, [f for f in old["flights"] if f not in stays], old["cabin"], -num)
    _take_seats(db, [f for f in new if f not in stays], cabin, num)
    reservation = db.edit("reservations", reservation_id)
    reservation["flights"], reservation["cabin"] = new, cabin
    _log_payment(reservation, payment_id, difference)
    return difference


def change_passengers(db: Store, reservation_id: str, passengers: list[Passenger]) -> None:
    """Replace who flies; every booked seat keeps somebody."""
    num = len(_active(db, reservation_id)["passengers"])
    if len(passengers) != num:
        raise ToolError(f"the reservation has {num} seats, but {len(passengers)} passengers came")
    db.edit("reservations", reservation_id)["passengers"] = [dict(p) for p in passengers]


def change_bags(db: Store, reservation_id: str, bags: int, paid_bags: int, payment_id: str) -> int:
    """Set the bags of a reservation, and return what that cost in cents, negative for a refund."""
    old = _active(db, reservation_id)
    _check_bags(bags, paid_bags)
    difference = (paid_bags - old["paid_bags"]) * BAG_CENTS
    _settle(db, old["user"], payment_id, difference)
    reservation = db.edit("reservations", reservation_id)
    reservation["bags"], reservation["paid_bags"] = bags, paid_bags
    _log_payment(reservation, payment_id, difference)
    return difference


def cancel(db: Store, reservation_id: str, reason: str) -> int:
    """Cancel a reservation: every payment goes back to where it came from. Return the cents."""
    old = _active(db, reservation_id)
    back = [{"id": p["id"], "cents": -p["cents"]} for p in old["payments"]]
    _take_seats(db, old["flights"], old["cabin"], -len(old["passengers"]))
    _charge(db, old["user"], back)
    reservation = db.edit("reservations", reservation_id)
    reservation["status"], reservation["reason"] = "cancelled", reason
    reservation["payments"] = old["payments"] + back
    return -sum(p["cents"] for p in back)


def send_certificate(db: Store, user_id: str, amount: float) -> str:
    """Give a user a certificate of so many dollars, and return its id."""
    payments = find(db, "users", user_id)["payments"]
    worth = cents(amount)
    if worth == 0:
        raise ToolError("a certificate is worth more than nothing")
    # The same number whichever of two is sent first, unless they are worth the same.
    number = next(n for n in count(100 + worth // 100) if f"cert{n}" not in payments)
    certificate = {"kind": "cert", "cents": worth}
    db.edit("users", user_id)["payments"][f"cert{number}"] = certificate
    return f"cert{number}"


def price(flights: Iterable[Record], num_passengers: int, paid_bags: int, insurance: bool) -> int:
    """Return what a booking costs, in cents."""
    fares = sum(f["cents"] for f in flights) * num_passengers
    return fares + paid_bags * BAG_CENTS + insurance * INSURANCE_CENTS * num_passengers


def departure(db: Store, flight: str, day: str) -> Record:
    """One flight on one day. Raises ToolError where it does not fly then."""
    find(db, "flights", flight)
    try:
        return db.peek("departures", departure_id(flight, day))
    except KeyError:
        raise ToolError(f"flight {flight} has no departure on {day!r}") from None


def _active(db: Store, reservation_id: str) -> Record:
    record = find(db, "reservations", reservation_id)
    if record["status"] != "active":
        raise ToolError(f"reservation {reservation_id} is {record['status']}")
    return record


def _check_bags(bags: int, paid_bags: int) -> None:
    if not 0 <= paid_bags <= bags:
        raise ToolError(f"{paid_bags} of {bags} bags cannot be paid")


def _bookable(db: Store, wanted: FlightOn, cabin: Cabin, num: int) -> Record:
    """Return a flight as a reservation holds it, at today's price."""
    number, day = wanted["flight"], wanted["date"]
    record = departure(db, number, day)
    if record["status"] not in BOOKABLE:
        raise ToolError(f"flight {number} on {day} is {record['status']}")
    if record["seats"][cabin] < num:
        left = record["seats"][cabin]
        raise ToolError(f"flight {number} on {day} has {left} seats in {cabin}; {num} are needed")
    flight = find(db, "flights", number)
    return {
        "flight": number,
        "date": day,
        "origin": flight["origin"],
        "destination": flight["destination"],
        "cents": record["prices"][cabin],
    }


def _check_journey(db: Store, flights: list[Record]) -> None:
    """Every flight leaves from where the one before landed, and after it."""
    for one, two in pairwise(flights):
        first, second = find(db, "flights", one["flight"]), find(db, "flights", two["flight"])
        meets = one["destination"] == two["origin"] and (
            one["date"] < two["date"] or (one["date"] == two["date"] and in_time(first, second))
        )
        if not meets:
            raise ToolError(f"one cannot change from {one['flight']} to {two['flight']} then")


def _take_seats(db: Store, flights: list[Record], cabin: Cabin, num: int) -> None:
    """Take seats, or give them back where `num` is negative; what has left has none to give."""
    for f in flights:
        key = departure_id(f["flight"], f["date"])
        if find(db, "departures", key)["status"] in BOOKABLE:
            db.edit("departures", key)["seats"][cabin] -= num


def _charge(db: Store, user_id: str, payments: list[Record]) -> None:
    """Take the cents from balances; negative ones are refunds. Nothing happens where one fails."""
    known = find(db, "users", user_id)["payments"]
    spent: dict[str, int] = {}
    for p in payments:
        if p["id"] not in known:
            raise ToolError(f"user {user_id} has no payment method {p['id']!r}")
        spent[p["id"]] = spent.get(p["id"], 0) + p["cents"]
    for key, amount in spent.items():
        balance = known[key]["cents"]
        if balance is not None and amount > balance:
            raise ToolError(f"{key} has {dollars(balance)} left; {dollars(amount)} are needed")
    for key, amount in spent.items():
        if known[key]["cents"] is not None and amount:
            method = db.edit("users", user_id)["payments"][key]
            # A certificate is handed in whole: what it is worth beyond the price is lost.
            method["cents"] = 0 if method["kind"] == "cert" else method["cents"] - amount


def _settle(db: Store, user_id: str, payment_id: str, difference: int) -> None:
    payments = find(db, "users", user_id)["payments"]
    if difference < 0 and payments.get(payment_id, {}).get("kind") == "cert":
        raise ToolError("a refund cannot go to a certificate")
    _charge(db, user_id, [{"id": payment_id, "cents": difference}])


def _log_payment(reservation: Record, payment_id: str, amount: int) -> None:
    if amount:
        reservation["payments"] = [*reservation["payments"], {"id": payment_id, "cents": amount}]


def _new_id(user: Record, user_id: str) -> str:
    """Return an id that depends on the user's reservations alone, so that siblings get the same."""
    return f"R{user_id[1:]}{len(user['reservations'])}"
