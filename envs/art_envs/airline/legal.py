"""Writes that the tools accept, whatever the policy says of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from art_envs.airline import search
from art_envs.airline.actions import BOOKABLE, dollars, find
from art_envs.airline.customer import REASONS
from art_envs.airline.database import BAG_CENTS, CABINS, Record, departure_id, departures
from art_envs.service.goal import Action, call
from art_envs.service.store import Store


def writes(db: Store, user_id: str) -> Iterator[Action]:
    """Yield what a user may have done now. Of what there is very much, a few stand for all."""
    user = find(db, "users", user_id)
    card = next(i for i, p in user["payments"].items() if p["kind"] == "card")
    for key in user["reservations"]:
        r = find(db, "reservations", key)
        if r["status"] != "active":
            continue
        for reason in REASONS:
            yield call("cancel", reservation_id=key, reason=reason)
        yield from _bags(key, r, card)
        yield from _passengers(key, r, user)
        yield from _cabins(db, key, r, card)
        yield from _other_days(db, key, r, card)
    for amount in (50, 100, 200):
        yield call("send_certificate", user_id=user_id, amount=amount)
    yield from _bookings(db, user_id, user, card)


def _bags(key: str, r: Record, card: str) -> Iterator[Action]:
    """Only such as cost something: what is free comes to the same with every card."""
    for bags, paid in ((1, 1), (2, 1), (2, 2)):
        yield call(
            "change_bags",
            reservation_id=key,
            bags=r["bags"] + bags,
            paid_bags=r["paid_bags"] + paid,
            payment_id=card,
        )


def _passengers(key: str, r: Record, user: Record) -> Iterator[Action]:
    for companion in user["companions"]:
        if companion in r["passengers"]:
            continue
        for leaves in r["passengers"]:
            after = [companion if p == leaves else p for p in r["passengers"]]
            yield call("change_passengers", reservation_id=key, passengers=after)


def _cabins(db: Store, key: str, r: Record, card: str) -> Iterator[Action]:
    flights = [{"flight": f["flight"], "date": f["date"]} for f in r["flights"]]
    there = [find(db, "departures", key) for key in departures(r)]
    for cabin in CABINS:
        free = all(
            d["status"] in BOOKABLE and d["seats"][cabin] >= len(r["passengers"]) for d in there
        )
        if free and cabin != r["cabin"]:
            yield call(
                "change_flights", reservation_id=key, cabin=cabin, flights=flights, payment_id=card
            )


def _other_days(db: Store, key: str, r: Record, card: str) -> Iterator[Action]:
    """Yield other days for journeys with one flight: every third."""
    if len(r["flights"]) > 1:
        return
    now = r["flights"][0]
    for day in search.coming_days(db)[::3]:
        for [f] in search.direct(db, r["origin"], r["destination"], day):
            same = (f["flight"], day) == (now["flight"], now["date"])
            if not same and f["seats"][r["cabin"]] >= len(r["passengers"]):
                yield call(
                    "change_flights",
                    reservation_id=key,
                    cabin=r["cabin"],
                    flights=[{"flight": f["flight"], "date": day}],
                    payment_id=card,
                )


def _bookings(db: Store, user_id: str, user: Record, card: str) -> Iterator[Action]:
    """Return the customer alone on one of the first flights that has room."""
    day = search.coming_days(db)[0]
    able = (
        (number, f, d["prices"]["economy"])
        for number, f in db.rows("flights")
        if (d := db.peek("departures", departure_id(number, day)))["status"] in BOOKABLE
        and d["seats"]["economy"]
    )
    for number, f, fare in islice(able, 2):
        for bags in (0, 1):
            yield call(
                "book",
                user_id=user_id,
                origin=f["origin"],
                destination=f["destination"],
                trip="one_way",
                cabin="economy",
                flights=[{"flight": number, "date": day}],
                passengers=[{k: user[k] for k in ("first", "last", "born")}],
                payments=[{"id": card, "amount": dollars(fare + bags * BAG_CENTS)}],
                bags=bags,
                paid_bags=bags,
                insurance=False,
            )
