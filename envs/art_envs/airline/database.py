"""The airline's records: who flies where, when and for how much. The same for the same seed.

    users["U34-20"]          tier, payment methods, saved companions, reservations
    reservations["R28-51"] flights, cabin, passengers, bags, insurance, what was paid
    departures["F10-37/2025-06-18"]   one flight on one day: status, free seats and prices by cabin
    flights["F10-37"]      a number of the timetable: route and times
    airports["SEA"]        its city
    desk["now"]            the time at which every episode takes place, and the days that are known

Amounts are whole cents. Times are local and compare as text.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Literal

Record = dict[str, Any]
Tables = dict[str, dict[str, Record]]
Cabin = Literal["basic", "economy", "business"]
Trip = Literal["one_way", "round_trip"]
Tier = Literal["regular", "silver", "gold"]

CABINS: tuple[Cabin, ...] = ("basic", "economy", "business")
TIERS: tuple[Tier, ...] = ("regular", "silver", "gold")
NOW = datetime(2025, 6, 15, 15, 0)
FREE_BAGS: dict[Tier, dict[Cabin, int]] = {  # a passenger, by the tier of who booked
    "regular": {"basic": 0, "economy": 1, "business": 2},
    "silver": {"basic": 1, "economy": 2, "business": 3},
    "gold": {"basic": 2, "economy": 3, "business": 4},
}
BAG_CENTS = 50_00  # what a bag beyond the free ones costs
INSURANCE_CENTS = 30_00  # a passenger
CONNECTION = timedelta(minutes=45)  # the least time between two flights of a journey
PRICES: dict[Cabin, tuple[int, int]] = {  # dollars, of one flight
    "basic": (40, 99),
    "economy": (100, 199),
    "business": (220, 499),
}
AIRPORTS = {
    "ATL": "Atlanta",
    "BOS": "Boston",
    "DEN": "Denver",
    "DFW": "Dallas",
    "JFK": "New York",
    "LAS": "Las Vegas",
    "LAX": "Los Angeles",
    "MCO": "Orlando",
    "MIA": "Miami",
    "ORD": "Chicago",
    "PHX": "Phoenix",
    "SEA": "Seattle",
}
FIRST = """
    Aisha Amara Ben Carla Chen Daniel Elena Emma Fatima Hugo Ivan James Jin Jonas Kenji Lena Liam
    Lucia Maria Mei Mia Noah Nora Omar Priya Raj Sara Sofia Tom Yuki"""
LAST = """
    Adams Ahmed Brown Costa Davis Diaz Evans Garcia Hill Ito Jones Khan Kim Kovacs Lee Li Lopez
    Martin Moore Novak Okafor Patel Rossi Santos Silva Smith Tanaka Weber Wilson Young"""
FIRST_NAMES, LAST_NAMES = FIRST.split(), LAST.split()


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The sizes of the database."""

    users: int = 200
    pairs: int = 30  # of airports that are connected; two flights a day in each direction
    dates: int = 20
    reservations: int = 600
    plain: bool = False  # reservations of one passenger on one flight


def build(seed: int, extent: Extent) -> Tables:
    """Return all tables. Raises nothing; takes well under a second."""
    rng = random.Random(seed)
    db: Tables = {"airports": {code: {"city": city} for code, city in AIRPORTS.items()}}
    db["flights"] = _timetable(rng, extent)
    db["departures"] = _departures(rng, db["flights"], extent)
    db["users"] = _users(rng, extent)
    db["reservations"] = {}
    ids = _codes(rng, "R")
    owners = list(db["users"])
    for i in range(extent.reservations):
        owner = owners[i % len(owners)]  # everyone has as many, give or take one
        reservation = _reservation(rng, db, owner, extent)
        reservation_id = next(ids)
        db["reservations"][reservation_id] = reservation
        db["users"][owner]["reservations"].append(reservation_id)
    db["desk"] = {"now": {"time": stamp(NOW), "days": days(extent)}}
    return db


def stamp(moment: datetime) -> str:
    """Return a time as the tables hold it: 2025-06-15T15:00."""
    return moment.isoformat(timespec="minutes")


def departure_id(flight: str, day: str) -> str:
    """Return the key of one flight on one day."""
    return f"{flight}/{day}"


def departures(journey: Record) -> list[str]:
    """Return the keys of the flights of a reservation, or of a tool's arguments."""
    return [departure_id(f["flight"], f["date"]) for f in journey["flights"]]


def bags_to_pay(tier: Tier, cabin: Cabin, num_passengers: int, bags: int) -> int:
    """Return how many of so many bags are not free."""
    return max(0, bags - FREE_BAGS[tier][cabin] * num_passengers)


def days(extent: Extent) -> list[str]:
    """Return the days that the timetable covers; today is in the middle."""
    first = NOW.date() - timedelta(days=extent.dates // 2)
    return [str(first + timedelta(days=i)) for i in range(extent.dates)]


def _codes(rng: random.Random, prefix: str) -> Iterator[str]:
    """Each once, in no order, as R28-51: a tokenizer sees two numbers of two digits."""
    codes = [f"{prefix}{a}-{b}" for a in range(10, 100) for b in range(10, 100)]
    rng.shuffle(codes)
    return iter(codes)


def _timetable(rng: random.Random, extent: Extent) -> dict[str, Record]:
    """Connected pairs of airports, each with a morning and an afternoon flight both ways."""
    codes = sorted(AIRPORTS)
    pairs = [(a, b) for a in codes for b in codes if a < b]
    ids = _codes(rng, "F")
    flights = {}
    for a, b in rng.sample(pairs, extent.pairs):
        for origin, destination in ((a, b), (b, a)):
            for earliest in (6, 13):
                leaves = (earliest * 60 + rng.randrange(0, 300, 5)) * 60
                lands = leaves + rng.randrange(70, 300, 5) * 60
                flights[next(ids)] = {
                    "origin": origin,
                    "destination": destination,
                    "departs": _clock(leaves),
                    "arrives": _clock(lands),  # before midnight: 18:00 and five hours at most
                }
    return dict(sorted(flights.items()))


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}"


def _departures(
    rng: random.Random, flights: dict[str, Record], extent: Extent
) -> dict[str, Record]:
    return {
        departure_id(number, day): {
            "status": _status(rng, flight, day),
            "seats": {c: 0 if rng.random() < 0.15 else rng.randint(2, 9) for c in CABINS},
            "prices": {c: rng.randint(*PRICES[c]) * 100 for c in CABINS},
        }
        for number, flight in flights.items()
        for day in days(extent)
    }


def _status(rng: random.Random, flight: Record, day: str) -> str:
    luck = rng.random()
    if luck < 0.1:
        return "cancelled"
    if f"{day}T{flight['arrives']}" <= stamp(NOW):
        return "landed"
    if f"{day}T{flight['departs']}" <= stamp(NOW):
        return "flying"
    return "delayed" if luck < 0.22 else "on time"


def _users(rng: random.Random, extent: Extent) -> dict[str, Record]:
    users = {}
    ids = _codes(rng, "U")
    for _ in range(extent.users):
        last = rng.choice(LAST_NAMES)
        users[next(ids)] = {
            "first": rng.choice(FIRST_NAMES),
            "last": last,
            "born": _birthday(rng),
            "tier": rng.choice(TIERS),
            "payments": _payments(rng),
            "companions": [_person(rng) for _ in range(rng.randint(2, 4))],
            "reservations": [],
        }
    return users


def _payments(rng: random.Random) -> dict[str, Record]:
    """One or two cards, and often a gift card or a certificate; the number is part of the id."""
    kinds = ["card"] * rng.randint(1, 2) + ["gift"] * rng.choice([0, 1, 1, 2])
    kinds += ["cert"] * rng.choice([0, 0, 1, 2])
    numbers = rng.sample(range(10, 100), len(kinds))
    payments: dict[str, Record] = {}
    for kind, number in zip(kinds, numbers, strict=True):
        cents = {"card": None, "gift": rng.randint(3, 60) * 1000, "cert": rng.randint(1, 5) * 5000}
        payments[f"{kind}{number}"] = {"kind": kind, "cents": cents[kind]}
    return payments


def _person(rng: random.Random) -> Record:
    names = {"first": rng.choice(FIRST_NAMES), "last": rng.choice(LAST_NAMES)}
    return {**names, "born": _birthday(rng)}


def _birthday(rng: random.Random) -> str:
    return str(date(1950, 1, 1) + timedelta(days=rng.randrange(20_000)))


def _reservation(rng: random.Random, db: Tables, owner: str, extent: Extent) -> Record:
    """Return a booking as someone once made it, paid in full by card or gift card."""
    cabin = rng.choice(CABINS)
    journey, trip = _journey(rng, db, extent)
    user = db["users"][owner]
    self_ = {k: user[k] for k in ("first", "last", "born")}
    others = rng.sample(user["companions"], 0 if extent.plain else rng.choice([0, 0, 1, 1, 2]))
    passengers = [self_, *others]
    flights = [
        {
            "flight": number,
            "date": day,
            "origin": db["flights"][number]["origin"],
            "destination": db["flights"][number]["destination"],
            "cents": rng.randint(*PRICES[cabin]) * 100,
        }
        for number, day in journey
    ]
    num = len(passengers)
    bags = rng.choice([0, 1, 1, 2, 2, 3, 4])
    paid_bags = bags_to_pay(user["tier"], cabin, num, bags)
    insured = rng.random() < 0.4
    cost = sum(f["cents"] for f in flights) * num + paid_bags * BAG_CENTS
    cost += insured * INSURANCE_CENTS * num
    means = [i for i, p in user["payments"].items() if p["kind"] != "cert"]
    return {
        "user": owner,
        "origin": flights[0]["origin"],
        "destination": flights[_turn(trip, flights)]["destination"],
        "trip": trip,
        "cabin": cabin,
        "flights": flights,
        "passengers": passengers,
        "payments": [{"id": rng.choice(means), "cents": cost}],
        "created": _created(rng, journey[0][1]),
        "bags": bags,
        "paid_bags": paid_bags,
        "insurance": insured,
        "status": "cancelled" if rng.random() < 0.05 else "active",
    }


def _turn(trip: Trip, flights: list[Record]) -> int:
    """Return which flight reaches the destination: the last, or the last before the way back."""
    return len(flights) - 1 if trip == "one_way" else len(flights) // 2 - 1


def _journey(rng: random.Random, db: Tables, extent: Extent) -> tuple[list[tuple[str, str]], Trip]:
    """Return flights as (number, day), and the kind of trip. Two thirds are still to come."""
    numbers = list(db["flights"])
    all_days = sorted({key.partition("/")[2] for key in db["departures"]})
    coming = [d for d in all_days if d > str(NOW.date())]
    day = rng.choice(coming if rng.random() < 0.67 else all_days)
    first = rng.choice(numbers)
    out = [first]
    if extent.plain:
        return [(first, day)], "one_way"
    if rng.random() < 0.25:
        out += rng.sample(_connections(db, first), 1) if _connections(db, first) else []
    later = [d for d in all_days if d > day]
    if rng.random() < 0.5 or not later:
        return [(n, day) for n in out], "one_way"
    back = [_back(rng, db, n) for n in reversed(out)]
    if len(back) == 2 and back[1] not in _connections(db, back[0]):
        out, back = out[:1], back[1:]
    day_back = rng.choice(later)
    return [(n, day) for n in out] + [(n, day_back) for n in back], "round_trip"


def _back(rng: random.Random, db: Tables, number: str) -> str:
    flight = db["flights"][number]
    way = (flight["destination"], flight["origin"])
    options = (n for n, f in db["flights"].items() if (f["origin"], f["destination"]) == way)
    return rng.choice(list(options))


def _connections(db: Tables, number: str) -> list[str]:
    """Return the flights that one can change to on the same day, without going back."""
    flights = db["flights"]
    return [n for n, f in flights.items() if connects(flights[number], f)]


def connects(first: Record, second: Record) -> bool:
    """Return whether one can change to the second flight on the same day, and so gets further."""
    meet = first["destination"] == second["origin"] and second["destination"] != first["origin"]
    return meet and in_time(first, second)


def in_time(first: Record, second: Record) -> bool:
    """Return whether the second flight leaves late enough to be caught after the first."""
    landed = datetime.fromisoformat(f"2025-01-01T{first['arrives']}")
    return stamp(landed + CONNECTION) <= f"2025-01-01T{second['departs']}"


def _created(rng: random.Random, first_day: str) -> str:
    """The time of booking: a fifth within the last day, always before it begins."""
    if first_day > str(NOW.date()) and rng.random() < 0.2:
        return stamp(NOW - timedelta(minutes=rng.randrange(30, 23 * 60)))
    latest = min(NOW - timedelta(days=2), datetime.fromisoformat(f"{first_day}T00:00"))
    return stamp(latest - timedelta(minutes=rng.randrange(60, 40 * 1440)))
