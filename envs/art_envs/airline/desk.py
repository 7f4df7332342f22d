"""The airline's service desk as an env.

One episode at level 0, as a perfect assistant plays it:

    user        User U34-20. Cancel reservation R28-51, reason health.
    assistant   <tool_call>{"name": "get_reservation", "arguments": ...}</tool_call>
    tool        {"reservation_id": "R28-51", "cabin": "economy", "insurance": true, ...}
    assistant   <tool_call>{"name": "cancel", "arguments": ...}</tool_call>
    tool        {"returned": 320}
    assistant   It is done.

A reservation that may not be cancelled: refuse(reason="cancel"), which ends the ticket.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from art_cli import Scenario, Split, ToolError
from art_envs.airline import actions, legal, search
from art_envs.airline.actions import FlightOn, Passenger, Payment, dollars
from art_envs.airline.customer import Customer, NoGoal
from art_envs.airline.database import Cabin, Extent, Trip, build, departure_id, departures
from art_envs.airline.document import document, reasons
from art_envs.airline.policy import Case, broken_rules
from art_envs.airline.scenarios import draw
from art_envs.service.asking import SLOTS, Slot, Slots
from art_envs.service.desk import ServiceDesk
from art_envs.service.episode import Size, read, write
from art_envs.service.goal import DONE, Action, Goal, Kind, call
from art_envs.service.store import Record, Tables

Reason = Literal["plans", "health", "weather", "airline"]
EXTENTS: dict[Size, Extent] = {
    "full": Extent(),
    # So many reservations that hardly any two tickets are about one: else a model learns which.
    "small": Extent(users=400, pairs=8, dates=12, reservations=2400, plain=True),
}
NUM_GOALS: dict[Split, int] = {"train": 800, "val": 100, "test": 100}
SEED = 0


class AirlineDesk(ServiceDesk):
    """An airline's service desk: book, change, cancel and compensate under a policy."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ServiceDesk.Config):
        """Settings of `env.args`."""

        most_when_small = 3

    slots: ClassVar[Slots] = {
        **SLOTS,
        "reservation": Slot(
            re.compile(
                r"\b(?:reservation|booking|confirmation) ?(?:id|number|code|reference)\b"
                r"|\b(?:number|id) of (?:the|your) (?:reservation|booking)\b"
                r"|\bwhich (?:of your )?(?:reservation|booking|trip)s?\b"
                r"|\b(?:several|two|three|some) (?:bookings|reservations|trips)\b",
                re.I,
            ),
            "The reservation is {}.",
        ),
    }

    num_goals: ClassVar[dict[Size, dict[Split, int]]] = dict.fromkeys(EXTENTS, NUM_GOALS)

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.reasons = reasons(cfg.size, cfg.level)

    @classmethod
    def make_database(cls, size: Size) -> Tables:
        return build(SEED, EXTENTS[size])

    @classmethod
    def draw_goal(
        cls, cfg: ServiceDesk.Config, rng: random.Random, user_id: str, kind: Kind
    ) -> Goal | None:
        try:
            return draw(Customer(cls.database(cfg), rng, user_id, cfg.level, cfg.size), kind)
        except NoGoal:
            return None

    @classmethod
    def policy(cls, cfg: ServiceDesk.Config) -> str:
        return document(cfg.size, cfg.level)

    def forbids(self, write: Action) -> bool:
        case = Case(
            db=self.store,
            user_id=self.goal["user_id"],
            tool=write["name"],
            args=write["arguments"],
            level=self.cfg.level,
            size=self.cfg.size,
        )
        try:
            return bool(broken_rules(case))
        except ToolError:  # it is about a reservation or flight that does not exist
            return False

    def is_identified(self) -> bool:
        return self.cfg.size == "small" or ("users", self.goal["user_id"]) in self.store.seen

    @read
    async def get_user(self, user_id: str) -> str:
        """Look a user up."""
        user = dict(self._look("users", user_id))
        user["payments"] = {key: _worth(p) for key, p in user["payments"].items()}
        return json.dumps({"user_id": user_id, **user})

    @read
    async def get_reservation(self, reservation_id: str) -> str:
        """Look a reservation up."""
        found = self._look("reservations", reservation_id)
        shown = {"reservation_id": reservation_id, **found}
        if self.cfg.size == "small":
            [flight] = [self._look("departures", key) for key in departures(found)]
            shown = {field: found[field] for field in ("cabin", "insurance", "created")}
            return json.dumps({**shown, "flight": flight["status"]})
        for field in ("flights", "payments"):
            shown[field] = [_priced(item) for item in shown[field]]
        return json.dumps(shown)

    @read
    async def list_airports(self) -> str:
        """List airports."""
        return json.dumps({code: r["city"] for code, r in self.store.rows("airports")})

    @read
    async def search_direct(self, origin: str, destination: str, date: str) -> str:
        """Find flights.

        Args:
            origin: the code of an airport
            destination: the code of an airport
            date: as 2025-06-18
        """
        return json.dumps(search.shown(search.direct(self.store, origin, destination, date)))

    @read
    async def search_onestop(self, origin: str, destination: str, date: str) -> str:
        """Find flights with one stop.

        Args:
            origin: the code of an airport
            destination: the code of an airport
            date: as 2025-06-18
        """
        return json.dumps(search.shown(search.one_stop(self.store, origin, destination, date)))

    @read
    async def flight_status(self, flight: str, date: str) -> str:
        """Look a flight up."""
        actions.departure(self.store, flight, date)
        shown = self._look("departures", departure_id(flight, date))
        return json.dumps({"flight": flight, "date": date, "status": shown["status"]})

    @write
    async def book(
        self,
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
        """Book flights.

        Args:
            flights: all, in order, those of the way back too
            payments: in dollars; they must add up to the price
            bags: of all passengers together
            paid_bags: how many of the bags are paid
        """
        made = actions.book(
            self.store,
            user_id,
            origin,
            destination,
            trip,
            cabin,
            flights,
            passengers,
            payments,
            bags,
            paid_bags,
            insurance,
        )
        return json.dumps({"reservation_id": made})

    @write
    async def change_flights(
        self, reservation_id: str, cabin: Cabin, flights: list[FlightOn], payment_id: str
    ) -> str:
        """Replace flights.

        Args:
            cabin: of all flights
            flights: all, in order; those that stay are named again
            payment_id: for the difference in price, paid or returned
        """
        paid = actions.change_flights(self.store, reservation_id, cabin, flights, payment_id)
        return json.dumps({"paid": dollars(paid)})

    @write
    async def change_passengers(self, reservation_id: str, passengers: list[Passenger]) -> str:
        """Replace passengers.

        Args:
            passengers: all; those who stay are named again
        """
        actions.change_passengers(self.store, reservation_id, passengers)
        return json.dumps({"ok": True})

    @write
    async def change_bags(
        self, reservation_id: str, bags: int, paid_bags: int, payment_id: str
    ) -> str:
        """Set the bags.

        Args:
            bags: in all, of all passengers together
            paid_bags: how many of them are paid
            payment_id: for the difference in price
        """
        paid = actions.change_bags(self.store, reservation_id, bags, paid_bags, payment_id)
        return json.dumps({"paid": dollars(paid)})

    @write
    async def cancel(self, reservation_id: str, reason: Reason) -> str:
        """Cancel a reservation."""
        returned = actions.cancel(self.store, reservation_id, reason)
        return json.dumps({"returned": dollars(returned)})

    @write
    async def send_certificate(self, user_id: str, amount: float) -> str:
        """Send a certificate.

        Args:
            amount: in dollars
        """
        return json.dumps({"id": actions.send_certificate(self.store, user_id, amount)})

    def _look(self, table: str, key: str) -> Record:
        actions.find(self.store, table, key)  # or the error that says what there is not
        found = self.store.get(table, key)
        assert found is not None
        return found

    def _guess(self, rng: random.Random, right: Sequence[str | Action]) -> Sequence[str | Action]:
        """Yes or no by chance: what is to be learned is when."""
        given = [*self.goal["temptation"], DONE] if self.goal["temptation"] else right
        return rng.choice([given, [call("refuse", reason=self._no(rng))]])

    def _no(self, rng: random.Random) -> str:
        """Return a reason by chance, of those that the policy at hand names."""
        return rng.choice(["flown", "cancel"] if self.cfg.size == "small" else list(self.reasons))

    def legal_writes(self) -> Iterator[Action]:
        """Paid by card alone; of flights and bookings, a few stand for all."""
        return legal.writes(self.store, self.goal["user_id"])


def _worth(payment: Record) -> Any:
    """Return a payment method as it is shown: what is left on it, where that is limited."""
    return payment["kind"] if payment["cents"] is None else dollars(payment["cents"])


def _priced(item: Record) -> Record:
    shown = {k: v for k, v in item.items() if k != "cents"}
    return {**shown, "price": dollars(item["cents"])}
