"""The flights from here to there on a day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from art_envs.airline.actions import BOOKABLE, dollars, find
from art_envs.airline.database import Cabin, Record, connects, departure_id
from art_envs.service.store import Store

Option = list[Record]  # the flights of one way to get there, each with its departure


def direct(db: Store, origin: str, destination: str, day: str) -> list[Option]:
    """Flights that can be booked, by time."""
    found = [f for f in _leaving(db, origin, day) if f["destination"] == destination]
    return [[f] for f in found]


def one_stop(db: Store, origin: str, destination: str, day: str) -> list[Option]:
    """Pairs of flights that can be booked, by time."""
    return [
        [first, second]
        for first in _leaving(db, origin, day)
        for second in _leaving(db, first["destination"], day)
        if second["destination"] == destination and connects(first, second)
    ]


def coming_days(db: Store) -> list[str]:
    """Return the days after today that the timetable covers."""
    now = find(db, "desk", "now")
    return [day for day in now["days"] if day > now["time"][:10]]


def shown(options: list[Option]) -> list[Any]:
    """Return options as the tools show them: in dollars, with the free seats."""
    out = [[_shown(f) for f in option] for option in options]
    return [flights[0] if len(flights) == 1 else flights for flights in out]


def cheapest(options: list[Option], cabin: Cabin, num: int) -> Option | None:
    """Return the option that costs least, with seats for so many; None without one, or with two."""
    return _best(options, cabin, num, lambda o: sum(f["prices"][cabin] for f in o))


def earliest(options: list[Option], cabin: Cabin, num: int) -> Option | None:
    """The option that leaves first, with seats for so many; None without one, or with two."""
    return _best(options, cabin, num, lambda o: o[0]["departs"])


def _best(
    options: list[Option], cabin: Cabin, num: int, key: Callable[[Option], Any]
) -> Option | None:
    able = sorted((o for o in options if all(f["seats"][cabin] >= num for f in o)), key=key)
    if not able or (len(able) > 1 and key(able[0]) == key(able[1])):
        return None
    return able[0]


def _leaving(db: Store, origin: str, day: str) -> list[Record]:
    """Return the day's departures from an airport that can be booked, by time."""
    found = []
    if day not in find(db, "desk", "now")["days"]:
        return []
    for number, flight in db.rows("flights"):
        if flight["origin"] != origin:
            continue
        departure = db.peek("departures", departure_id(number, day))
        if departure["status"] in BOOKABLE:
            found.append({"flight": number, "date": day, **flight, **departure})
    return sorted(found, key=lambda f: (f["departs"], f["flight"]))


def _shown(f: Record) -> Record:
    times = {k: f[k] for k in ("flight", "date", "origin", "destination", "departs", "arrives")}
    prices = {cabin: dollars(price) for cabin, price in f["prices"].items()}
    return {**times, "seats": f["seats"], "prices": prices}
