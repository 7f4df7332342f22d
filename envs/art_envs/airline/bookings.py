"""New bookings, questions, and what is beyond the desk: drawn at random."""

from __future__ import annotations

from typing import Any

from art_envs.airline import search
from art_envs.airline.actions import dollars, price
from art_envs.airline.customer import Customer, NoGoal, Request
from art_envs.airline.database import (
    AIRPORTS,
    BAG_CENTS,
    CABINS,
    FREE_BAGS,
    INSURANCE_CENTS,
    Cabin,
    Record,
    bags_to_pay,
)
from art_envs.airline.policy import MAX_PASSENGERS
from art_envs.airline.requests import full_name, look_at
from art_envs.airline.search import Option
from art_envs.service.goal import Action, call

STRANGERS = (  # whom no profile knows
    {"first": "Ada", "last": "Berg", "born": "1990-02-03"},
    {"first": "Leo", "last": "Berg", "born": "1988-11-21"},
    {"first": "Zoe", "last": "Frost", "born": "2001-07-14"},
    {"first": "Max", "last": "Frost", "born": "1999-05-30"},
)
BEYOND = (  # neither a tool nor a rule covers these
    "My suitcase did not arrive after my last flight. Where is it?",
    "I need a wheelchair at the airport for my next flight.",
    "I want to take my dog with me in the cabin.",
    "My name has changed after my wedding. Please change it in my profile.",
    "I left my laptop on board last week. Can somebody look for it?",
    "My eight-year-old son will travel alone and somebody has to look after him.",
    "The miles of my last flight are missing on my account.",
    "I need an invoice with my employer's tax number on it.",
)


def book(c: Customer) -> Request:
    """Return a new booking; now and then for too many, or with too many certificates."""
    cabin, (ways, reads, wish) = c.rng.choice(CABINS), _journey(c)
    people = _people(c)
    options = [search.cheapest(way, cabin, len(people)) for way in ways]
    chosen = [option for option in options if option is not None]
    if len(chosen) < len(ways):
        raise NoGoal
    flights = [f for option in chosen for f in option]
    bags, insured = c.rng.choice([0, 1, 2, 3]), c.rng.random() < 0.4
    paid_bags = bags_to_pay(c.user["tier"], cabin, len(people), bags)
    fares = [{"cents": f["prices"][cabin]} for f in flights]
    cost = price(fares, len(people), paid_bags, insured)
    payments, said = _payments(c, cost)
    names = " and ".join(["me", *(_introduced(c, p) for p in people[1:])])
    wish += f" in {cabin} for {names}, with {bags} bags and {'an' if insured else 'no'} insurance"
    arguments: dict[str, Any] = {
        "user_id": c.user_id,
        "origin": flights[0]["origin"],
        "destination": chosen[0][-1]["destination"],
        "trip": "round_trip" if len(chosen) == 2 else "one_way",
        "cabin": cabin,
        "flights": [{"flight": f["flight"], "date": f["date"]} for f in flights],
        "passengers": people,
        "payments": payments,
        "bags": bags,
        "paid_bags": paid_bags,
        "insurance": insured,
    }
    return Request(
        words=f"{wish}.",
        ticket=f"{wish}, payment: {said}.",
        slots={"payment": said},
        reads=[*reads, call("calculate", expression=_sum(fares, len(people), paid_bags, insured))],
        write=call("book", **arguments),
        facts=f"{len(people)} passengers, {len(payments)} payments",
        evidence=[["users", c.user_id]],
    )


def _journey(c: Customer) -> tuple[list[list[Option]], list[Action], str]:
    """Return the options of each way, the searches that show them, and the wish in words."""
    origin, destination = c.rng.sample(list(AIRPORTS), 2)
    db = c.records()
    out, back = sorted(c.rng.sample(search.coming_days(db), 2))
    between = f"from {c.place(origin)} to {c.place(destination)} on {out}"
    route = {"origin": origin, "destination": destination, "date": out}
    there = search.direct(db, origin, destination, out)
    cities = [call("list_airports")] if c.level >= 2 else []
    if not there:
        there = search.one_stop(db, origin, destination, out)
        if not there:
            raise NoGoal
        reads = [*cities, call("search_direct", **route), call("search_onestop", **route)]
        return [there], reads, f"Book me the cheapest way with one stop {between}, one way,"
    reads = [*cities, call("search_direct", **route)]
    if c.rng.random() < 0.6:
        return [there], reads, f"Book me the cheapest direct flight {between}, one way,"
    ways = [there, search.direct(db, destination, origin, back)]
    reads += [call("search_direct", origin=destination, destination=origin, date=back)]
    return ways, reads, f"Book me the cheapest direct flights {between} and back on {back}"


def _people(c: Customer) -> list[Record]:
    """Return the customer and some companions, now and then too many."""
    self_ = {k: c.user[k] for k in ("first", "last", "born")}
    if c.rng.random() < 0.1:
        return [self_, *c.user["companions"], *STRANGERS][: MAX_PASSENGERS + 1]
    return [self_, *c.user["companions"][: c.rng.choice([0, 0, 1, 2])]]


def _introduced(c: Customer, person: Record) -> str:
    """Return how a companion is named: one in no profile comes with a date of birth."""
    born = "" if person in c.user["companions"] else f", born {person['born']},"
    return f"{full_name(person)}{born}"


def _payments(c: Customer, cost: int) -> tuple[list[Record], str]:
    """Return the payments of so many cents, and how the customer says it."""
    certs = [i for i, p in c.user["payments"].items() if p["kind"] == "cert"]
    used = certs[: c.rng.choice([0, 1, 2])]
    payments, left = [], cost
    for key in used:
        part = min(left, c.user["payments"][key]["cents"])
        payments.append({"id": key, "amount": dollars(part)})
        left -= part
    if left:
        payments.append({"id": c.payment, "amount": dollars(left)})
    rest = c.method(c.payment)
    return payments, f"{' and '.join(used)} first, the rest with {rest}" if used else rest


def _sum(fares: list[Record], num: int, paid_bags: int, insured: bool) -> str:
    parts = [f"({' + '.join(str(dollars(f['cents'])) for f in fares)}) * {num}"]
    parts += [f"{paid_bags} * {dollars(BAG_CENTS)}"] if paid_bags else []
    parts += [f"{num} * {dollars(INSURANCE_CENTS)}"] if insured else []
    return " + ".join(parts)


def question(c: Customer) -> Request:
    """Something that the records answer with a number."""
    if c.size == "small" or c.rng.random() < 0.3:  # small records show neither price nor bags
        return _fare_question(c)
    key, r = c.reservation()
    num = len(r["passengers"])
    paid = dollars(sum(p["cents"] for p in r["payments"]))
    free = FREE_BAGS[c.user["tier"]][r["cabin"]] * num
    words, answer = c.rng.choice(
        [
            (f"How much did {c.name(key)} cost me in all?", paid),
            (f"How many bags are free on {c.name(key)}, for all of us together?", free),
        ]
    )
    return Request(
        about=key,
        words=words,
        reads=look_at(c, key, r)[:1],
        write=None,
        facts=f"{c.user['tier']} {r['cabin']} {num} passengers",
        outputs=[str(answer)],
        evidence=[["reservations", key], ["users", c.user_id]],
    )


def _fare_question(c: Customer) -> Request:
    flight = c.rng.choice(list(c.base["flights"].values()))
    day = c.rng.choice(search.coming_days(c.records()))
    cabin: Cabin = c.rng.choice(CABINS)
    route = {"origin": flight["origin"], "destination": flight["destination"], "date": day}
    best = search.cheapest(search.direct(c.records(), *route.values()), cabin, 1)
    if best is None:
        raise NoGoal
    between = f"from {c.place(flight['origin'])} to {c.place(flight['destination'])}"
    cities = [call("list_airports")] if c.level >= 2 else []
    return Request(
        words=f"What does the cheapest direct flight {between} on {day} cost in {cabin}, for one?",
        reads=[*cities, call("search_direct", **route)],
        write=None,
        outputs=[str(dollars(best[0]["prices"][cabin]))],
    )


def beyond(c: Customer) -> Request:
    """Something that only a human can see to."""
    words = c.say(*BEYOND)
    return Request(words=words, reads=[], write=call("transfer", summary=words))
