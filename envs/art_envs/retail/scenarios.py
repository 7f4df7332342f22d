"""Whole customers: wishes put together by kind, and told by level."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Literal

from art_envs.retail.data import GIFT_CARD, VERBS, Scale, Verb
from art_envs.retail.minds import Minds
from art_envs.retail.policy import PENDING, total
from art_envs.retail.telling import Teller
from art_envs.retail.wishes import (
    CAUSES,
    HARD,
    Cause,
    Wish,
    Wishes,
    in_dollars,
    in_words,
    new_address,
)
from art_envs.service.asking import SLOTS as COMMON_SLOTS
from art_envs.service.asking import Slot, Slots
from art_envs.service.goal import MINDS, MINDS_FROM, Goal, Kind, call
from art_envs.service.store import Record, Tables

SLOTS: Slots = COMMON_SLOTS | {
    "order_id": Slot(
        re.compile(
            r"\border(?:'s)? (?:id|number)\b|\bwhich (?:of your )?orders?\b"
            r"|\b(?:several|two|three|more than one|some) orders\b"
            r"|\b(?:number|id) of (?:the|your) order\b",
            re.I,
        ),
        "The order number is {}.",
    ),
}
TRIES = 40  # to draw a wish that fits
# At level 1, with one wish a scenario, by weight: what is granted, and what is refused for which
# cause. The weights even out that some fit few orders, so that for no tool one answer is much more
# frequent than the others. What is always granted (another address of the account) is left out.
GRANTED_ALONE: dict[Verb, int] = {
    "cancel": 10,
    "address": 9,
    "payment": 21,
    "modify": 6,
    "return": 10,
    "exchange": 12,
}
REFUSED_ALONE: dict[tuple[Verb, Cause], int] = {
    ("cancel", "status"): 6,
    ("cancel", "reason"): 6,
    ("cancel", "owner"): 5,
    ("address", "status"): 7,
    ("address", "owner"): 5,
    ("payment", "status"): 8,
    ("payment", "method"): 10,
    ("modify", "status"): 9,
    ("modify", "variant"): 7,
    ("modify", "product"): 5,
    ("modify", "method"): 9,
    ("return", "status"): 14,
    ("return", "method"): 12,
    ("exchange", "status"): 9,
    ("exchange", "variant"): 6,
    ("exchange", "product"): 6,
    ("exchange", "method"): 18,
}
OUT_OF_SCOPE = (
    "The website shows me an error whenever I log in. Please repair that.",
    "My parcel was lost on its way. Please have the carrier search for it.",
    "I want to complain about one of your drivers.",
    "I want to sell my own products in your shop. Please set that up.",
    "Please send me a printed catalogue.",
    "I need a signed tax certificate for my purchases of last year.",
)


class Sampler:
    """Draws a goal of a user."""

    def __init__(
        self,
        rng: random.Random,
        tables: Tables,
        user: Record,
        level: int,
        scale: Scale,
    ) -> None:
        self._rng = rng
        self._tables = tables
        self._user = user
        self._level = level
        self._scale = scale
        self._orders = [tables["orders"][id] for id in user["orders"]]
        self._wishes = Wishes(rng, tables, user, level, self._reference, self._landmarks)
        self._minds = Minds(rng, tables, user, self._wishes)
        self._spoken_of: set[str] = set()  # the orders of the wishes so far

    def goal(self, kind: Kind) -> Goal | None:
        """None where the user's orders do not allow for this kind."""
        rng = self._rng
        if kind == "information":
            return self._told(kind, [self._question()])
        if kind == "transfer":
            return self._told(kind, [self._out_of_scope()])
        turns = self._level >= MINDS_FROM and rng.random() < MINDS[kind]
        if turns and kind in ("refused", "fallback"):
            first = self._wish(False)
            back = kind == "fallback"
            return self._told(kind, [first and self._minds.forbidden(first, back=back)])
        if kind in ("one", "refused"):
            wishes = [self._wish(kind == "refused")]
        elif kind in ("conditional", "fallback"):
            first = self._wish(kind == "fallback")
            other = self._wish(False, about=first)
            if not (first and other):
                return None
            first.otherwise = other
            wishes: list[Wish | None] = [first]
        elif kind == "several" and self._level >= HARD:
            return self._several(turns=turns)
        else:
            denials = [False] * rng.choice((2, 3))
            if kind == "partly":
                denials = [*denials[: None if self._level >= HARD else 1], True]
                rng.shuffle(denials)
            wishes = [self._wish(denied) for denied in denials]
        return self._told(kind, self._minds.changed(wishes) if turns else wishes)

    def _several(self, *, turns: bool) -> Goal | None:
        """Return up to four wishes: two on one order, or with a question before them.

        `turns`: the customer changes their mind about one that is alone on its order.
        """
        rng = self._rng
        how = rng.choice(("orders", "one order", "question"))
        wishes = [self._question()] if how == "question" else []
        if how == "one order":
            wishes = self._pair()
        num = rng.choice((1, 2) if wishes else (2, 3, 4))
        more = [self._wish(False) for _ in range(num - (how == "one order"))]
        more = self._minds.changed(more) if turns else more
        return self._told("several", [*wishes, *more], pair=how == "one order")

    def _pair(self) -> list[Wish | None]:
        """Return two wishes about one pending order that may be granted in either order."""
        pending = [o for o in self._orders if o["status"] == PENDING and self._landmarks(o)]
        if not pending:
            return [None]
        order = self._rng.choice(pending)
        self._spoken_of.add(order["order_id"])
        second: Verb = self._rng.choice(("modify", "payment"))
        found = [self._wishes.draw(order, verb, None) for verb in ("address", second)]
        self._rng.shuffle(found)
        return found

    def _wish(self, denied: bool, about: Wish | None = None) -> Wish | None:
        """Any wish, or another one about the same order."""
        rng = self._rng
        alone = self._level == 1 and self._scale.verbs == VERBS
        moves = "address" in self._scale.verbs and not alone
        if not denied and not about and moves and rng.random() < 0.1:
            return self._move()
        own = [o for o in self._orders if about is None or o["order_id"] in about.records]
        cause: Cause | None = None
        if alone and denied:
            [(verb, cause)] = rng.choices(list(REFUSED_ALONE), list(REFUSED_ALONE.values()))
        elif alone:
            [verb] = rng.choices(list(GRANTED_ALONE), list(GRANTED_ALONE.values()))
        else:
            verb = rng.choice(self._scale.verbs)
            cause = rng.choice(CAUSES[verb]) if denied else None
        if not own:  # it was about a friend's order
            return None
        # Drawn once: what fits most orders would otherwise be asked most often.
        for _ in range(TRIES):
            if about is not None:  # this order may allow for little
                verb = rng.choice(self._scale.verbs)
            order = self._strangers() if cause == "owner" else rng.choice(own)
            if cause != "owner" and self._level > 1 and not self._landmarks(order):
                continue
            wish = self._wishes.draw(order, verb, cause)
            if wish and not (about and about.write == wish.write):
                self._spoken_of.add(order["order_id"])
                return wish
        return None

    def _strangers(self) -> Record:
        orders = self._tables["orders"]
        while True:
            order = orders[self._rng.choice(list(orders))]
            if order["status"] == PENDING and order["user_id"] != self._user["user_id"]:
                return order

    def _landmarks(self, order: Record) -> set[str]:
        """Return the items that only this one of the user's orders holds."""
        others = {i["name"] for o in self._orders if o is not order for i in o["items"]}
        return {i["name"] for i in order["items"]} - others

    def _reference(self, order: Record) -> str:
        """Return how the user says which order they mean; from level 2 on, not by its number."""
        id = order["order_id"]
        if self._level < 2 or order["user_id"] != self._user["user_id"]:
            return f"my order #{id}"
        if self._level >= HARD and self._spoken_of == set(self._user["orders"]) - {id}:
            return "my other order"
        return f"my order with the {min(self._landmarks(order))}"

    def _move(self) -> Wish:
        to = new_address(self._rng, self._user["address"])
        said = f"I have moved. Please change the address of my account to {in_words(to)}."
        id = self._user["user_id"]
        return Wish(
            verb="move",
            said=said,
            brief=said,
            write=call("modify_user_address", user_id=id, **to),
            records={id},
        )

    def _question(self) -> Wish:
        rng, user = self._rng, self._user
        records: set[str] = set()
        cards = [p for p in user["payments"].values() if p["kind"] == GIFT_CARD]
        what: Literal["total", "balance", "count", "cheapest"]
        what = rng.choice(["total", "count", "cheapest", *(["balance"] if cards else [])])
        if what == "balance":
            reads = [call("get_user", user_id=user["user_id"])]
            said, evidence = "How much is left on my gift card?", ["users", user["user_id"]]
            output = in_dollars(cards[0]["balance"])
        elif what == "total":
            order = rng.choice([o for o in self._orders if self._landmarks(o)] or self._orders)
            reads = [call("get_order", order_id=order["order_id"])]
            said = f"How much do the items of {self._reference(order)} cost together?"
            evidence, output = ["orders", order["order_id"]], in_dollars(total(order))
            records = {order["order_id"]}
        else:
            id = rng.choice(list(self._tables["products"]))
            product = self._tables["products"][id]
            prices = [v["price"] for v in product["variants"].values() if v["available"]]
            what = what if prices else "count"
            reads = [call("list_product_types"), call("get_product", product_id=id)]
            evidence = ["products", id]
            name = product["name"]
            said = f"How many variants of the {name} are available?"
            output = str(len(prices))
            if what == "cheapest":
                said = f"What does the cheapest available variant of the {name} cost?"
                output = in_dollars(min(prices))
        return Wish(
            verb="ask",
            said=said,
            brief=said,
            reads=reads,
            outputs=[output],
            evidence=[evidence],
            records=records,
        )

    def _out_of_scope(self) -> Wish:
        said = self._rng.choice(OUT_OF_SCOPE)
        write = call("transfer", summary=said)
        return Wish(verb="transfer", said=said, brief=said, write=write)

    def _told(
        self, kind: Kind, wishes: Sequence[Wish | None], *, pair: bool = False
    ) -> Goal | None:
        wanted = [wish for wish in wishes if wish]
        if len(wanted) < len(wishes):
            return None
        records = [id for wish in wanted[pair:] for id in wish.records]
        if len(set(records)) < len(records):
            return None  # two wishes about one order would get into each other's way
        if sum(map(self._pays_by_gift_card, wanted)) > 1:
            return None  # the balance would make the order of the two matter
        by_email = self._rng.random() < self._scale.by_email
        teller = Teller(self._rng, self._level, self._user, by_email=by_email)
        return teller.goal(kind, wanted)

    def _pays_by_gift_card(self, wish: Wish) -> bool:
        writes = [each.write for each in (wish, wish.last) if each.write]
        used = [write["arguments"].get("payment_id") for write in writes]
        return any(id and self._user["payments"][id]["kind"] == GIFT_CARD for id in used)
