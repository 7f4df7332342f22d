"""Somebody at the desk, and one thing that they want: with the tool call that grants it.

A request says nothing of whether the policy allows it: `judged` finds that out, and whether the
records permit it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from art_cli import ToolError
from art_envs.airline import actions
from art_envs.airline.database import AIRPORTS
from art_envs.airline.policy import Case, broken_rules
from art_envs.service.episode import Size
from art_envs.service.goal import Action
from art_envs.service.store import Record, Store, Tables

HARD = 4  # from this level on a reservation is asked two things, and openings are long
REASONS = {  # argument of `cancel` -> as a customer says it
    "plans": "my plans changed",
    "health": "a health problem",
    "weather": "the weather",
    "airline": "the airline cancelled a flight",
}
WRITES: dict[str, Callable[..., Any]] = {
    "book": actions.book,
    "change_flights": actions.change_flights,
    "change_passengers": actions.change_passengers,
    "change_bags": actions.change_bags,
    "cancel": actions.cancel,
    "send_certificate": actions.send_certificate,
}


class NoGoal(Exception):
    """The draw does not make a goal of the kind."""


@dataclass(slots=True, kw_only=True)
class Request:
    """One thing that a customer wants."""

    words: str  # the customer's, without what they tell only when asked
    ticket: str = ""  # the same with everything, where that differs
    slots: dict[str, str] = field(default_factory=dict)  # what they tell when asked
    reads: list[Action]  # what to look up, in order; the user's profile goes without saying
    write: Action | None  # what granting it comes to; None: a question
    facts: str = ""  # what decides about it, in a few words
    about: str | None = None  # the reservation
    outputs: list[str] = field(default_factory=list)  # what the answer must say
    evidence: list[list[str]] = field(default_factory=list)  # of a refusal
    reasons: list[str] = field(default_factory=list)  # the names of the rules that forbid it


@dataclass(frozen=True, slots=True)
class Step:
    """A request, and what becomes of it."""

    request: Request
    # A fallback that is not needed is "unsaid". What the customer wants in the place of the step
    # before, as soon as they are asked to confirm it, is "instead".
    turn: Literal["want", "fallback", "unsaid", "instead"] = "want"
    is_dropped: bool = False  # the customer thinks better of it: the next step is "instead"

    @property
    def is_done(self) -> bool:
        """True if the assistant has to settle it: grant it, or refuse it."""
        return self.turn != "unsaid" and not self.is_dropped

    @property
    def is_granted(self) -> bool:
        """True if it comes to a write."""
        return self.is_done and not self.request.reasons and self.request.write is not None

    @property
    def is_refused(self) -> bool:
        """True if the customer must be told no."""
        return self.is_done and bool(self.request.reasons)


class Customer:
    """Somebody at the desk, and what has been done for them so far."""

    def __init__(
        self, base: Tables, rng: random.Random, user_id: str, level: int, size: Size
    ) -> None:
        self.base = base
        self.size: Size = size
        self.rng = rng
        self.user_id = user_id
        self.level = level
        self.user = base["users"][user_id]
        self.done: list[Action] = []
        self.touched: set[str] = set()  # reservations that something was asked about
        self.only: str | None = None  # the reservation that the next request must be about
        # One of each for all requests: the customer is asked only once.
        self.reason = rng.choice(["plans", "plans", "health", "weather", "airline"])
        able = [i for i, p in self.user["payments"].items() if p["kind"] != "cert"]
        self.payment = rng.choice(able)

    def records(self) -> Store:
        """Return the records as they are after what has been done."""
        db = Store(self.base)
        for write in self.done:
            WRITES[write["name"]](db, **write["arguments"])
        return db

    def reservation(self) -> tuple[str, Record]:
        """One of theirs that nothing was asked about yet, with its id. Raises NoGoal."""
        own = self.user["reservations"]
        free = [self.only] if self.only else [i for i in own if i not in self.touched]
        active = [i for i in free if self.base["reservations"][i]["status"] == "active"]
        if not active:
            raise NoGoal
        chosen = self.rng.choice(active)
        return chosen, self.base["reservations"][chosen]

    def name(self, reservation_id: str) -> str:
        """Their name for a reservation: its id, or from level 2 on where and when it goes."""
        if self.level < 2:
            return f"reservation {reservation_id}"
        if self.level >= HARD and reservation_id == self._next():
            return "my next trip"
        trips = [_trip(self.base["reservations"][i]) for i in self.user["reservations"]]
        trip = _trip(self.base["reservations"][reservation_id])
        return trip if trips.count(trip) == 1 else f"reservation {reservation_id}"

    def _next(self) -> str | None:
        """Return the reservation whose first flight is the next to leave, where that is one."""
        today = self.base["desk"]["now"]["time"][:10]
        coming = sorted(
            (r["flights"][0]["date"], key)
            for key in self.user["reservations"]
            if (r := self.base["reservations"][key])["status"] == "active"
            and r["flights"][0]["date"] > today
        )
        alone = coming and (len(coming) == 1 or coming[0][0] < coming[1][0])
        return coming[0][1] if alone else None

    def place(self, airport: str) -> str:
        """Return what they call an airport: its code, or from level 2 on its city."""
        return AIRPORTS[airport] if self.level >= 2 else airport

    def method(self, payment: str) -> str:
        """Return what they call a payment method: its id, or from level 2 on its kind."""
        payments = self.user["payments"]
        kind = payments[payment]["kind"]
        alone = [p["kind"] for p in payments.values()].count(kind) == 1
        said = {"card": "my credit card", "gift": "my gift card", "cert": "my certificate"}[kind]
        return said if self.level >= 2 and alone else payment

    def say(self, *options: str) -> str:
        """One of several ways to say it."""
        return self.rng.choice(options)


def judged(customer: Customer, request: Request) -> Request:
    """Add the rule that forbids a request. Raises NoGoal if the records do not permit it."""
    if request.write is None:
        return request
    name, arguments = request.write["name"], request.write["arguments"]
    if name == "transfer":
        return request
    case = Case(
        db=customer.records(),
        user_id=customer.user_id,
        tool=name,
        args=arguments,
        about=request.about,
        level=customer.level,
        size=customer.size,
    )
    request.reasons = [rule.name for rule in broken_rules(case)]
    if "own" in request.reasons:  # which the customer says
        request.reads, request.evidence = [], []
    elif "flown" in request.reasons:
        request.evidence = [e for e in request.evidence if e[0] == "reservations"]
    if not request.reasons:
        _check_reason(request, case)
        try:
            paid = WRITES[name](case.db, **arguments)
        except ToolError:
            raise NoGoal from None
        if name == "change_flights" and paid == 0:  # any payment method would do
            raise NoGoal
    return request


def _check_reason(request: Request, case: Case) -> None:
    """Raise NoGoal where the record of a cancellation would hold a reason that is not true."""
    arguments = request.write["arguments"] if request.write else {}
    if arguments.get("reason") == "airline" and "cancelled" not in case.statuses():
        raise NoGoal


def _trip(r: Record) -> str:
    origin, destination = AIRPORTS[r["origin"]], AIRPORTS[r["destination"]]
    return f"my trip from {origin} to {destination} on {r['flights'][0]['date']}"
