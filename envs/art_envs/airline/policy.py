"""The airline's policy: every rule once, as the sentence that agents read and as code.

The tools do not know these rules. `document` renders them; `broken_rules` applies them to a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from art_envs.airline.actions import dollars, find
from art_envs.airline.database import (
    BAG_CENTS,
    CABINS,
    FREE_BAGS,
    INSURANCE_CENTS,
    NOW,
    TIERS,
    Record,
    bags_to_pay,
    departures,
    stamp,
)
from art_envs.service.episode import Size
from art_envs.service.store import Store

MAX_PASSENGERS = 5
MAX_OF_KIND = {"cert": 1, "card": 1, "gift": 3}  # payment methods in one booking
CANCEL_WITHIN = timedelta(hours=24)
COVERED_REASONS = ("health", "weather")  # by the insurance
COMPENSATION_CENTS = {"cancelled": 100_00, "delayed": 50_00}  # a passenger, by what happened
KIND_NAMES = {"cert": "certificate", "card": "credit card", "gift": "gift cards"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A write that someone thinks of, and what it is about."""

    db: Store
    user_id: str  # who is being served
    tool: str
    args: dict[str, Any]
    about: str | None = None  # the reservation, where the arguments name none
    asked: bool = True  # whether the customer asked for it

    @property
    def reservation(self) -> Record:
        """The reservation that the write changes, or that it is about."""
        return find(self.db, "reservations", self.args.get("reservation_id") or self.about or "")

    @property
    def user(self) -> Record:
        """Who is being served."""
        return find(self.db, "users", self.user_id)

    def statuses(self) -> set[str]:
        """Return what became of the reservation's flights."""
        keys = departures(self.reservation)
        return {find(self.db, "departures", key)["status"] for key in keys}


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold of a write, in words and in code."""

    name: str  # a short handle, for reports
    text: str
    tools: tuple[str, ...]  # the writes that it is about
    holds: Callable[[Case], bool]


def flown(case: Case) -> bool:
    """Return whether a flight of the reservation has left."""
    return bool(case.statuses() & {"landed", "flying"})


def may_cancel(case: Case) -> bool:
    """Return whether one of the four grounds for a cancellation is given."""
    r = case.reservation
    recent = r["created"] > stamp(NOW - CANCEL_WITHIN)
    covered = r["insurance"] and case.args["reason"] in COVERED_REASONS
    return recent or "cancelled" in case.statuses() or r["cabin"] == "business" or covered


def entitled(case: Case) -> bool:
    """Whether the customer may get a compensation for the reservation, if anything happened."""
    r = case.reservation
    return case.user["tier"] != "regular" or r["insurance"] or r["cabin"] == "business"


def compensation(case: Case) -> int:
    """Return how many cents a customer who complains may get for the reservation."""
    what = next((s for s in COMPENSATION_CENTS if s in case.statuses()), None)
    num = len(case.reservation["passengers"])
    return COMPENSATION_CENTS[what] * num if what and entitled(case) else 0


def _own(case: Case) -> bool:
    about = case.args.get("reservation_id")
    owner = case.reservation["user"] if about else case.args["user_id"]
    return owner == case.user_id


def _same_route(case: Case) -> bool:
    def route(flights: list[Record]) -> tuple[str, str]:
        first = find(case.db, "flights", flights[0]["flight"])
        last = find(case.db, "flights", flights[-1]["flight"])
        return first["origin"], last["destination"]

    reached = {find(case.db, "flights", f["flight"])["destination"] for f in case.args["flights"]}
    r = case.reservation
    return route(case.args["flights"]) == route(r["flights"]) and r["destination"] in reached


def _same_flights(case: Case) -> bool:
    return departures(case.args) == departures(case.reservation)


def _one_method(case: Case) -> bool:
    method = case.user["payments"].get(case.args["payment_id"])
    return method is not None and method["kind"] in ("card", "gift")


def _few_methods(case: Case) -> bool:
    used = {p["id"] for p in case.args["payments"]}
    kinds = [case.user["payments"][i]["kind"] for i in used if i in case.user["payments"]]
    return all(kinds.count(kind) <= most for kind, most in MAX_OF_KIND.items())


def _right_bags(case: Case) -> bool:
    booking = case.tool == "book"
    source = case.args if booking else case.reservation
    num = len(source["passengers"])
    due = bags_to_pay(case.user["tier"], source["cabin"], num, case.args["bags"])
    return case.args["paid_bags"] == (due if booking else max(due, source["paid_bags"]))


ON_RESERVATIONS = ("change_flights", "change_passengers", "change_bags", "cancel")
RULES = (
    Rule(
        "own",
        "Serve one customer only: change nothing that belongs to another user.",
        (*ON_RESERVATIONS, "book", "send_certificate"),
        _own,
    ),
    Rule(
        "flown",
        "Once any flight of a reservation is flying or has landed, it can be neither changed nor "
        "cancelled.",
        ON_RESERVATIONS,
        lambda case: not flown(case),
    ),
    Rule(
        "cancel",
        "Cancel a reservation only if it was booked in the last "
        f"{CANCEL_WITHIN // timedelta(hours=1)} hours, or the airline cancelled a flight of it, or "
        "its cabin is business, or it is insured and the reason is "
        f"{' or '.join(COVERED_REASONS)}.",
        ("cancel",),
        may_cancel,
    ),
    Rule(
        "basic",
        "The flights of a basic reservation cannot be changed; its cabin can.",
        ("change_flights",),
        lambda case: case.reservation["cabin"] != "basic" or _same_flights(case),
    ),
    Rule(
        "route",
        "Origin, destination and kind of trip of a reservation stay as they are.",
        ("change_flights",),
        _same_route,
    ),
    Rule(
        "method",
        "A change is paid with, or refunded to, one credit card or gift card of the customer's "
        "profile.",
        ("change_flights", "change_bags"),
        _one_method,
    ),
    Rule(
        "bags",
        "Bags can be added, never removed.",
        ("change_bags",),
        lambda case: case.args["bags"] > case.reservation["bags"],
    ),
    Rule(
        "free",
        f"Bags beyond the free ones are paid, {dollars(BAG_CENTS)} dollars each; bags that were "
        "paid stay paid. Free bags for each passenger: "
        + "; ".join(
            f"{tier} " + ", ".join(f"{FREE_BAGS[tier][cabin]} in {cabin}" for cabin in CABINS)
            for tier in TIERS
        )
        + ".",
        ("book", "change_bags"),
        _right_bags,
    ),
    Rule(
        "passengers",
        f"A reservation has at most {MAX_PASSENGERS} passengers. Their number stays as it is; who "
        "they are can be changed.",
        ("book", "change_passengers"),
        lambda case: len(case.args["passengers"]) <= MAX_PASSENGERS,
    ),
    Rule(
        "payments",
        "A booking is paid with methods of the customer's profile: at most "
        + ", ".join(f"{most} {KIND_NAMES[kind]}" for kind, most in MAX_OF_KIND.items())
        + ".",
        ("book",),
        _few_methods,
    ),
    Rule(
        "compensation",
        "Send a certificate only to a customer who asks for compensation, and who is silver or "
        "gold, or insured, or flies business: "
        + ", ".join(
            f"{dollars(amount)} dollars for each passenger if a flight of the reservation is {what}"
            for what, amount in COMPENSATION_CENTS.items()
        )
        + " (the larger alone where both are). Nothing else is compensated.",
        ("send_certificate",),
        lambda case: case.asked and 0 < compensation(case) == round(case.args["amount"] * 100),
    ),
)


def broken_rules(case: Case) -> list[Rule]:
    """Return the rules that the write breaks, in the order of the document."""
    return [rule for rule in RULES if case.tool in rule.tools and not rule.holds(case)]


REASONS = {rule.name: rule.text for rule in RULES}  # of refusals, as the customer hears them


PREAMBLE = f"""\
You serve customers of an airline: you book, change and cancel, compensate where that is due, and \
answer questions about reservations and flights. It is {stamp(NOW)}. Follow these rules in \
everything that you do: your tools do what they are told, whether or not a rule allows it.

# The customer
- Ask for the user id first and look the user up, before you do, tell or refuse anything, or hand \
over.
- Serve this one customer only, with the tools alone. Invent nothing, and say nothing that you do \
not know from them; give no advice and no opinion of your own.
- Customers seldom know the ids of their reservations. Look at each one in their profile until \
you have found the one that they describe, and at the status of its flights: a reservation does \
not show what became of them.

# What counts
- Write to the customer to ask for something, to explain, and to say that you are done. What you \
write is talk: it changes nothing, and it is neither a yes nor a no.
- confirm: before each change, call confirm with that one change, exactly as you will make it. \
Make no other call in that turn: the customer answers first. Only after a yes make this change, \
and no other; for the next one ask again.
- refuse: if a rule forbids what the customer wants, call refuse with the name of that rule. It \
must really forbid it. If the customer insists, refuse again; there are no exceptions. Do nothing \
else in its place unless the customer asks for that.
- tell: answer a question by calling tell with the value alone, once you have looked it up. A \
wrong value cannot be taken back, and nothing is told that was not asked for.
- transfer: hand over to a human only what is neither covered by the tools nor forbidden by the \
rules. What is forbidden is refused, not transferred.
- Make one call at a time, and not while you write to the customer.
- Do what was asked for, all of it, and nothing more. Customers may ask for several things, one \
after the other, and may change their mind until they have said yes.

# The airline
- A profile holds the customer's name and date of birth, tier ({", ".join(TIERS)}), payment \
methods, saved companions and reservations. A payment method is a credit card, a gift card or a \
certificate; the last two hold an amount. A certificate is handed in whole: what it is worth \
beyond the price is lost.
- A flight has a number, an origin, a destination, times, and a status on each day: on time or \
delayed (it can be booked), cancelled, flying or landed. Seats and prices differ by day and cabin \
({", ".join(CABINS)}). Basic is a cabin of its own, not economy.
- A reservation is one_way or round_trip. All of its passengers fly on all of its flights, in one \
cabin. It shows who flies, the flights with the price of each for one passenger, how it was paid, \
when it was booked, its bags and how many of them are paid, and whether it is insured.
- A booking needs: the trip, the flights in order, those of the way back too, the cabin, the \
passengers with their dates of birth, the bags, whether it is insured, and payments that add up \
to the price. The price is that of all flights for all passengers, the paid bags, and the \
insurance.
- A change of flights or cabin names all flights again, those that stay too; these keep their \
price in the same cabin, all others cost what they cost today. The cabin is the same on all \
flights. The difference is paid or returned.
- Bags are counted for all passengers together.
- After a cancellation every payment goes back to where it came from. Its reason is recorded: \
plans (the customer's plans changed), health, weather, or airline (the airline cancelled a \
flight).
- Insurance costs {dollars(INSURANCE_CENTS)} dollars a passenger and cannot be added later.
- Amounts are in dollars; times are local.
"""

BRIEF = f"""\
You serve customers of an airline. It is {stamp(NOW)}. Look the reservation up first. Refuse what \
these rules forbid, by their name. Your tools do not stop you:"""


def document(size: Size) -> str:
    """Return the policy as agents read it; the small one is about cancellations alone."""
    if size == "small":
        few = [rule for rule in RULES if rule.name in ("flown", "cancel")]
        return "\n".join([BRIEF, *(f"- {r.name}: {r.text}" for r in few)])
    return "\n".join([PREAMBLE, "# Rules, by name", *(f"- {r.name}: {r.text}" for r in RULES)])
