"""The airline's policy: every rule once, as the sentence that agents read and as code.

The tools do not know these rules. document.py renders them; `broken_rules` applies them to a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from art_cli import ToolError
from art_envs.airline.actions import departure, dollars, find
from art_envs.airline.database import (
    BAG_CENTS,
    CABINS,
    FREE_BAGS,
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
MAX_BAGS = {"basic": 2, "economy": 3, "business": 4}  # a passenger, free or paid
MAX_DAYS = 4  # that a way of a journey may be moved by
EXACTING = 3  # the level from which on all rules hold
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
    level: int = 0  # of the desk: some rules hold from EXACTING on
    size: Size = "full"

    @property
    def reservation(self) -> Record:
        """The reservation that the write changes, or that it is about."""
        return find(self.db, "reservations", self.args.get("reservation_id") or self.about or "")

    @property
    def user(self) -> Record:
        """The customer being served."""
        return find(self.db, "users", self.user_id)

    def statuses(self) -> set[str]:
        """Return what became of the reservation's flights."""
        keys = departures(self.reservation)
        return {find(self.db, "departures", key)["status"] for key in keys}


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a write, in words and in code."""

    name: str  # a short handle, for reports
    text: str
    tools: tuple[str, ...]  # the writes that it is about
    holds: Callable[[Case], bool]
    level: int = 0  # from which on it holds


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
    """True if the customer may get a compensation for the reservation, if anything happened."""
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
    if not case.args["flights"]:
        raise ToolError("no flight is named")

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


def _not_lower(case: Case) -> bool:
    is_lower = CABINS.index(case.args["cabin"]) < CABINS.index(case.reservation["cabin"])
    is_late = not case.statuses().isdisjoint(COMPENSATION_CENTS)
    return not is_lower or is_late or case.user["tier"] == "gold"


def _not_far(case: Case) -> bool:
    """The way out begins with the first flight; the last flight is on the day of the way back."""
    r, new = case.reservation, case.args["flights"]
    for flight in new:
        departure(case.db, flight["flight"], flight["date"])
    ends = [(r["flights"][at]["date"], new[at]["date"]) for at in (0, -1)]
    moved = [abs(date.fromisoformat(day) - date.fromisoformat(was)) for was, day in ends]
    return r["cabin"] == "business" or all(each.days <= MAX_DAYS for each in moved)


def _same_people(case: Case) -> bool:
    r = case.reservation
    stay = all(person in case.args["passengers"] for person in r["passengers"])
    return stay or r["cabin"] != "basic" or r["insurance"]


def _few_bags(case: Case) -> bool:
    source = case.args if case.tool == "book" else case.reservation
    return case.args["bags"] <= MAX_BAGS[source["cabin"]] * len(source["passengers"])


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
    Rule(
        "lower",
        f"The cabins are, from low to high, {', '.join(CABINS)}. A reservation can be changed to a "
        "higher cabin by everybody, but to a lower one only by gold customers, or if a flight of "
        f"the reservation is {' or '.join(COMPENSATION_CENTS)}.",
        ("change_flights",),
        _not_lower,
        EXACTING,
    ),
    Rule(
        "far",
        f"The flights of one way can be moved to a day that is at most {MAX_DAYS} days earlier or "
        "later than the day for which they are booked now. In business there is no such limit. A "
        "change of the cabin alone moves nothing.",
        ("change_flights",),
        _not_far,
        EXACTING,
    ),
    Rule(
        "names",
        "Nobody can be put in the place of a passenger of a basic reservation, unless the "
        "reservation is insured. In economy and business passengers can be replaced, insured or "
        "not.",
        ("change_passengers",),
        _same_people,
        EXACTING,
    ),
    Rule(
        "most",
        "The bags of a reservation, free and paid ones together, are at most "
        + ", ".join(f"{num} for each passenger in {cabin}" for cabin, num in MAX_BAGS.items())
        + ". This holds for a booking and for bags that are added later; what one passenger does "
        "not use, another one may.",
        ("book", "change_bags"),
        _few_bags,
        EXACTING,
    ),
)


def rules_at(level: int, size: Size = "full") -> list[Rule]:
    """Return the rules that hold at a level; at a small desk, those of level 0."""
    return [rule for rule in RULES if rule.level <= (level if size == "full" else 0)]


def broken_rules(case: Case) -> list[Rule]:
    """Return the rules that the write breaks, in the order of the document.

    Raises ToolError where the write names what does not exist.
    """
    rules = rules_at(case.level, case.size)
    return [rule for rule in rules if case.tool in rule.tools and not rule.holds(case)]
