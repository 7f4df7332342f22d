"""Questions of a customer about their reservations, drawn at random."""

from __future__ import annotations

from art_envs.airline import search
from art_envs.airline.actions import dollars
from art_envs.airline.customer import REASONS, Customer, NoGoal, Request
from art_envs.airline.database import (
    AIRPORTS,
    CABINS,
    Record,
    bags_to_pay,
    departures,
)
from art_envs.airline.policy import COMPENSATION_CENTS, Case, compensation, entitled
from art_envs.service.goal import Action, call


def cancel(c: Customer) -> Request:
    """Return a cancellation, for some reason."""
    key, r = c.reservation()
    reason = c.reason
    reads = look_at(c, key, r)
    request = Request(
        about=key,
        words=c.say(f"I want to cancel {c.name(key)}.", f"Please cancel {c.name(key)}."),
        ticket=f"Cancel {c.name(key)}, reason {reason}.",
        slots={"reason": REASONS[reason]},
        reads=reads,
        write=call("cancel", reservation_id=key, reason=reason),
        facts=f"{r['cabin']} {_insured(r)} booked {r['created'][:10]} {statuses(c, r)} {reason}",
        evidence=[["reservations", key], *([["departures", k] for k in departures(r)])],
    )
    if c.level and c.rng.random() < 0.25:
        request.words += " How much do I get back?"
        request.outputs = [str(dollars(sum(p["cents"] for p in r["payments"])))]
    return request


def bags(c: Customer) -> Request:
    """More bags; now and then fewer."""
    (key, r), payment, said = c.reservation(), c.payment, c.method(c.payment)
    more = c.rng.choice([1, 1, 1, 2, 2, 3, -1])
    total = r["bags"] + more
    due = bags_to_pay(c.user["tier"], r["cabin"], len(r["passengers"]), max(total, 0))
    if total < 0:
        raise NoGoal
    paid = max(due, r["paid_bags"]) if more > 0 else min(r["paid_bags"], total)
    verb, num = ("Add", more) if more > 0 else ("Remove", -more)
    what = f"{num} bag{'s' if num > 1 else ''}"
    return Request(
        about=key,
        words=f"{verb} {what} {'to' if more > 0 else 'from'} {c.name(key)}, please.",
        ticket=f"{verb} {what} {'to' if more > 0 else 'from'} {c.name(key)}, payment {payment}.",
        slots={"payment": said},
        reads=look_at(c, key, r),
        write=call(
            "change_bags", reservation_id=key, bags=total, paid_bags=paid, payment_id=payment
        ),
        facts=f"{c.user['tier']} {r['cabin']} {len(r['passengers'])} passengers "
        f"{r['bags']} bags {r['paid_bags']} paid {statuses(c, r)}",
        evidence=[["reservations", key]],
    )


def passengers(c: Customer) -> Request:
    """Somebody else flies; now and then somebody more."""
    key, r = c.reservation()
    names = {full_name(p) for p in r["passengers"]}
    new = next((p for p in c.user["companions"] if full_name(p) not in names), None)
    if new is None:
        raise NoGoal
    leaves = c.rng.choice(r["passengers"])
    who = f"{full_name(new)}, born {new['born']}"
    if c.rng.random() < 0.15:
        wish, after = f"Add {who} as a passenger of {c.name(key)}.", [*r["passengers"], new]
    else:
        wish = f"Put {who} in the place of {full_name(leaves)} on {c.name(key)}."
        after = [new if p == leaves else p for p in r["passengers"]]
    return Request(
        about=key,
        words=wish,
        ticket=wish,
        reads=look_at(c, key, r),
        write=call("change_passengers", reservation_id=key, passengers=after),
        facts=f"{len(r['passengers'])} passengers {statuses(c, r)}",
        evidence=[["reservations", key]],
    )


def cabin(c: Customer) -> Request:
    """Another cabin on the same flights."""
    (key, r), payment, said = c.reservation(), c.payment, c.method(c.payment)
    to = c.rng.choice([x for x in CABINS if x != r["cabin"]])
    flights = [{"flight": f["flight"], "date": f["date"]} for f in r["flights"]]
    write = call(
        "change_flights", reservation_id=key, cabin=to, flights=flights, payment_id=payment
    )
    prices = [
        call("search_direct", origin=f["origin"], destination=f["destination"], date=f["date"])
        for f in r["flights"]
    ]
    return Request(
        about=key,
        words=c.say(f"I want to fly {to} on {c.name(key)}.", f"Change {c.name(key)} to {to}."),
        ticket=f"Change {c.name(key)} to {to}, payment {payment}.",
        slots={"payment": said},
        reads=look_at(c, key, r) + (prices if c.level else []),
        write=write,
        facts=f"{r['cabin']} {statuses(c, r)}",
        evidence=[["reservations", key]],
    )


def flights(c: Customer) -> Request:
    """One way of the journey on another day; now and then to another place."""
    (key, r), payment, said = c.reservation(), c.payment, c.method(c.payment)
    legs = _legs(r)
    which = c.rng.randrange(len(legs))
    leg, others = legs[which], [f for i, other in enumerate(legs) if i != which for f in other]
    origin, destination = leg[0]["origin"], leg[-1]["destination"]
    if len(legs) == 1 and c.rng.random() < 0.15:
        destination = c.rng.choice([a for a in AIRPORTS if a not in (origin, destination)])
    after = max([f["date"] for f in others if which == 1], default="0")
    before = min([f["date"] for f in others if which == 0], default="9")
    coming = search.coming_days(c.records())
    choices = [d for d in coming if after < d < before and d != leg[0]["date"]]
    if not choices:
        raise NoGoal
    day, num = c.rng.choice(choices), len(r["passengers"])
    how, pick = c.rng.choice([("cheapest", search.cheapest), ("earliest", search.earliest)])
    options = search.direct(c.records(), origin, destination, day)
    best = pick(options, r["cabin"], num)
    if best is None:
        raise NoGoal
    new = [{"flight": f["flight"], "date": day} for f in best]
    stay = [{"flight": f["flight"], "date": f["date"]} for f in others]
    write = call(
        "change_flights",
        reservation_id=key,
        cabin=r["cabin"],
        flights=new + stay if which == 0 else stay + new,
        payment_id=payment,
    )
    way = f"the flight from {c.place(origin)} to {c.place(leg[-1]['destination'])}"
    goal = "" if destination == leg[-1]["destination"] else f", but to {c.place(destination)}"
    wish = f"On {c.name(key)}, move {way} to {day}{goal}: take the {how} direct flight"
    cities = [call("list_airports")] if goal and c.level >= 2 else []
    found_at = call("search_direct", origin=origin, destination=destination, date=day)
    return Request(
        about=key,
        words=f"{wish}.",
        ticket=f"{wish}, payment {payment}.",
        slots={"payment": said},
        reads=[*look_at(c, key, r), *cities, found_at],
        write=write,
        facts=f"{r['cabin']} {r['origin']} {r['destination']} {statuses(c, r)}",
        evidence=[["reservations", key]],
    )


def compensate(c: Customer) -> Request:
    """Money for a flight that was cancelled or delayed, or so the customer says."""
    key, r = c.reservation()
    write = call("send_certificate", user_id=c.user_id, amount=0)
    case = Case(db=c.records(), user_id=c.user_id, tool="send_certificate", args={}, about=key)
    due = compensation(case)
    happened = case.statuses()
    what = next((s for s in COMPENSATION_CENTS if s in happened), c.say("delayed", "cancelled"))
    write["arguments"]["amount"] = dollars(due or 100_00)
    told = f"A flight of {c.name(key)} is {what}. I want a compensation."
    # Who is not entitled at all can be told so whatever became of the flights.
    read = [["departures", k] for k in departures(r)] if entitled(case) else []
    return Request(
        about=key,
        words=told,
        ticket=told,
        reads=look_at(c, key, r),
        write=write,
        facts=f"{c.user['tier']} {r['cabin']} {_insured(r)} {len(r['passengers'])} passengers "
        f"{statuses(c, r)}",
        evidence=[["reservations", key], ["users", c.user_id], *read],
    )


def foreign(c: Customer) -> Request:
    """Return a cancellation of what belongs to somebody else."""
    keys = [k for k, r in c.base["reservations"].items() if r["user"] != c.user_id]
    key = c.rng.choice(keys)
    r = c.base["reservations"][key]
    if r["status"] != "active":
        raise NoGoal
    told = f"Cancel reservation {key} of a friend of mine"
    return Request(
        about=key,
        words=f"{told}.",
        ticket=f"{told}, reason plans.",
        slots={"reason": REASONS["plans"]},
        reads=[call("get_reservation", reservation_id=key)],
        write=call("cancel", reservation_id=key, reason="plans"),
        facts="another user",
        evidence=[["reservations", key]],
    )


def look_at(c: Customer, key: str, r: Record) -> list[Action]:
    """The reservation, and what became of each of its flights, where it does not show that."""
    if c.size == "small":
        return [call("get_reservation", reservation_id=key)]
    return [
        call("get_reservation", reservation_id=key),
        *(call("flight_status", flight=f["flight"], date=f["date"]) for f in r["flights"]),
    ]


def full_name(person: Record) -> str:
    """First and last."""
    return f"{person['first']} {person['last']}"


def statuses(c: Customer, r: Record) -> str:
    """Return what became of its flights, in order."""
    return " ".join(c.base["departures"][k]["status"] for k in departures(r))


def _insured(r: Record) -> str:
    return "insured" if r["insurance"] else "uninsured"


def _legs(r: Record) -> list[list[Record]]:
    """Return the ways of the journey: out, and back if there is one."""
    half = len(r["flights"]) // 2
    return [r["flights"]] if r["trip"] == "one_way" else [r["flights"][:half], r["flights"][half:]]
