"""A customer's wishes for one order, whether the policy allows them, and the right answer.

A wish is drawn for a cause: None for one that the policy allows, or why it must be refused. The
policy's own checks decide, and a draw that they see otherwise is thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from art_envs.retail import policy
from art_envs.retail.data import Verb, make_address
from art_envs.retail.policy import CANCEL_REASONS, DELIVERED, PENDING, Broken
from art_envs.service.goal import Action, call
from art_envs.service.store import Record, Tables

Cause = Literal["status", "reason", "owner", "variant", "product", "method"]

CAUSES: dict[Verb, tuple[Cause, ...]] = {
    "cancel": ("status", "reason", "owner"),
    "address": ("status", "owner"),
    "payment": ("status", "method"),
    "modify": ("status", "variant", "product", "method"),
    "return": ("status", "method"),
    "exchange": ("status", "variant", "product", "method"),
}
# Statuses in which another tool does what the words ask for, so that a refusal would be doubtful.
# A pending order's items are modified rather than exchanged, or cancelled rather than returned.
OTHER_TOOL: dict[Verb, str] = {"modify": DELIVERED, "exchange": PENDING, "return": PENDING}
BAD_REASONS = (  # of customers who still need the items and ordered them on purpose
    "the delivery takes too long",
    "I want to order it again when your sale begins",
    "I want to order it again with a discount code",
    "I want to order it again through my company's account",
)
# Of which the customer's own words are evidence enough.
TOLD: tuple[Cause, ...] = ("reason", "owner", "product")
HARD = 4  # from this level on items are several, and said by reference


@dataclass(kw_only=True)
class Wish:
    """One thing that a customer wants."""

    verb: Verb | Literal["move", "ask", "transfer", "replace", "keep"]
    said: str  # with every detail
    brief: str  # without what they tell when asked
    asked: str = ""  # the question that gets the rest
    facts: dict[str, str] = field(default_factory=dict)  # what they tell then
    reads: list[Action] = field(default_factory=list)
    asks: list[Action] = field(default_factory=list)  # what the customer must do, in order
    write: Action | None = None  # None: a question
    is_mended: bool = False  # by what the customer does: the write must not be made
    temptation: list[Action] = field(default_factory=list)  # what is done by one without a policy
    remark: str = ""
    reasons: list[str] = field(default_factory=list)  # why it must be refused; empty: it is granted
    outputs: list[str] = field(default_factory=list)
    evidence: list[list[str]] = field(default_factory=list)
    records: set[str] = field(default_factory=set)  # ids that it is about
    otherwise: Wish | None = None  # what they want instead once it is refused
    rather: Wish | None = None  # what they want instead as soon as they are asked to confirm

    @property
    def last(self) -> Wish:
        """The wish that the customer has in the end."""
        then = self.rather or (self.otherwise if self.reasons else None)
        return then.last if then else self


class Wishes:
    """Draws wishes of one user.

    `reference` says an order in words ("my order with the lamp"); `landmarks` gives the items that
    no other order of the user holds.
    """

    def __init__(
        self,
        rng: random.Random,
        tables: Tables,
        user: Record,
        level: int,
        reference: Callable[[Record], str],
        landmarks: Callable[[Record], set[str]],
    ) -> None:
        self._rng = rng
        self._tables = tables
        self._user = user
        self._level = level
        self._reference = reference
        self._landmarks = landmarks
        self._methods = {p["kind"]: id for id, p in user["payments"].items()}

    def draw(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        """Return a wish about an order, refused for the cause; None where there is no such wish."""
        makers = {
            "cancel": self._cancel,
            "address": self._address,
            "payment": self._payment,
            "modify": self._swap,
            "return": self._return,
            "exchange": self._swap,
        }
        if cause == "status" and order["status"] == OTHER_TOOL.get(verb):
            return None
        wish = makers[verb](order, verb, cause)
        if wish is None:
            return None
        wish.reads.insert(0, call("get_order", order_id=order["order_id"]))
        wish.records |= {order["order_id"]}
        wish.remark = f"The customer wants: {verb}. The order is {order['status']}. {wish.remark}"
        wish.remark = wish.remark.strip()
        if wish.reasons:
            assert wish.write
            wish.temptation = wish.temptation or [wish.write]
            wish.evidence = [] if cause in TOLD else [["orders", order["order_id"]]]
        if cause in TOLD:  # then nothing of the order has to be known
            wish.reads, wish.remark = [], f"The customer wants: {verb}. {_REMARKS[cause]}"
        return wish

    def _cancel(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        bad = cause == "reason"
        reason = self._rng.choice(BAD_REASONS if bad else CANCEL_REASONS)
        broken = policy.against_cancel(order)
        if bool(broken) != (cause == "status"):
            return None
        id = order["order_id"]
        brief = f"Please cancel {self._reference(order)}."
        if cause == "owner":
            brief = f"Please cancel my friend's order #{id}."
        return Wish(
            verb=verb,
            said=f"{brief} Reason: {reason}.",
            brief=brief,
            asked="What is the reason?",
            facts={"reason": reason},
            write=call("cancel_order", order_id=id, reason=CANCEL_REASONS[0] if bad else reason),
            remark=f"The reason: {reason}.",
            reasons=[cause] if cause in ("reason", "owner") else _rules(broken),
        )

    def _address(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        broken = policy.against_address(order)
        if bool(broken) != (cause == "status"):
            return None
        to, where, reads = self._other_address(order)
        id = order["order_id"]
        which = f"my friend's order #{id}" if cause == "owner" else self._reference(order)
        said = f"Please send {which} to {where}."
        return Wish(
            verb=verb,
            said=said,
            brief=said,
            reads=reads,
            write=call("modify_order_address", order_id=order["order_id"], **to),
            reasons=[cause] if cause == "owner" else _rules(broken),
        )

    def _other_address(self, order: Record) -> tuple[Record, str, list[Action]]:
        """Return another address, how it is said, and where it is to be read."""
        known: list[tuple[Record, str, list[Action]]] = []
        home = self._user["address"]
        if self._level >= HARD and home != order["address"]:
            known.append((home, "the address of my account", [self._look_at_user()]))
        for id in self._user["orders"] if self._level >= HARD else []:
            other = self._tables["orders"][id]
            if other["address"] not in (order["address"], home) and self._landmarks(other):
                where = f"the same address as {self._reference(other)}"
                known.append((other["address"], where, [call("get_order", order_id=id)]))
        if known:
            return self._rng.choice(known)
        to = new_address(self._rng, order["address"])
        return to, in_words(to), []

    def _payment(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        paid = order["paid"][-1]["payment_id"]
        kinds = [kind for kind, id in self._methods.items() if id != paid]
        if not kinds:
            return None
        kind = self._rng.choice(kinds)
        broken = policy.against_payment(order, self._user, self._methods[kind])
        if _first(broken) != cause:
            return None
        said = f"Please let me pay {self._reference(order)}"
        return Wish(
            verb=verb,
            said=f"{said} by {kind}.",
            brief=f"{said} in another way.",
            asked="Which payment method do you want?",
            facts={"payment": kind},
            reads=[self._look_at_user()],
            write=call(
                "modify_order_payment",
                order_id=order["order_id"],
                payment_id=self._methods[kind],
            ),
            remark=_remark_on(broken),
            reasons=_rules(broken),
        )

    def _return(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        items = order["items"]
        chosen = items if self._rng.random() < 0.4 else self._rng.sample(items, 1)
        ids = [item["item_id"] for item in chosen]
        kind = self._rng.choice(list(self._methods))
        broken = policy.against_return(order, self._user, ids, self._methods[kind])
        if _first(broken) != cause:
            return None
        names = [item["name"] for item in chosen]
        id, original = order["order_id"], order["paid"][0]["payment_id"]
        brief = f"Please take back the {' and the '.join(names)}{self._part_of(order, names)}."
        to = f"on my {kind}"
        if self._level >= HARD and self._methods[kind] == original:
            to = "the way I paid for it"
        wish = Wish(
            verb=verb,
            said=f"{brief} I want the refund {to}, not otherwise.",
            brief=brief,
            asked="Which payment method shall get the refund?",
            facts={"payment": kind},
            reads=[self._look_at_user()],
            write=call("return_items", order_id=id, item_ids=ids, payment_id=self._methods[kind]),
            remark=_remark_on(broken),
            reasons=_rules(broken),
        )
        if cause == "method":
            wish.temptation = [call("return_items", order_id=id, item_ids=ids, payment_id=original)]
        return wish

    def _swap(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        """Other variants for items: `modify` before the delivery, `exchange` after it."""
        num = 1
        if self._level >= HARD and cause != "product":
            num = self._rng.choice([n for n in (1, 2, 2, 3) if n <= len(order["items"])])
        chosen = self._rng.sample(order["items"], num)
        products = [self._tables["products"][item["product_id"]] for item in chosen]
        if cause == "product":
            others = [id for id in self._tables["products"] if id != chosen[0]["product_id"]]
            products = [self._tables["products"][self._rng.choice(others)]]
        picks = [self._variant(item, p) for item, p in zip(chosen, products, strict=True)]
        kind = self._rng.choice(list(self._methods))
        ids = ([item["item_id"] for item in chosen], [new for new, _ in picks])
        broken = policy.against_swap(
            order,
            self._user,
            self._tables["products"],
            *ids,
            self._methods[kind],
            status=PENDING if verb == "modify" else DELIVERED,
        )
        if _first(broken) != cause:
            return None
        names = [item["name"] for item in chosen]
        brief = self._swap_in_words(verb, order, names, [into for _, into in picks])
        if cause == "product":
            wanted = options_in_words(products[0]["variants"][picks[0][0]]["options"])
            into = f"a {products[0]['name']}, {wanted}"
            brief = self._swap_in_words(verb, order, names, [into])
        return Wish(
            verb=verb,
            said=f"{brief} Use my {kind} for the difference.",
            brief=brief,
            asked="Which payment method shall be used for the difference?",
            facts={"payment": kind},
            reads=[
                self._look_at_user(),
                *(call("get_product", product_id=p["product_id"]) for p in products),
            ],
            write=call(
                "modify_order_items" if verb == "modify" else "exchange_items",
                order_id=order["order_id"],
                item_ids=ids[0],
                new_item_ids=ids[1],
                payment_id=self._methods[kind],
            ),
            remark=_remark_on(broken),
            reasons=_rules(broken),
        )

    def _variant(self, item: Record, product: Record) -> tuple[str, str]:
        """Return another variant of a product, and how it is said."""
        variants = product["variants"]
        others = [id for id in variants if id != item["item_id"]]
        if self._level >= HARD and self._rng.random() < 0.4:
            able = sorted((variants[id]["price"], id) for id in others if variants[id]["available"])
            if able and (len(able) == 1 or able[0][0] < able[1][0]):
                return able[0][1], "the cheapest other one that is available"
        new = self._rng.choice(others)
        return new, f"the one with {options_in_words(variants[new]['options'])}"

    def _swap_in_words(self, verb: Verb, order: Record, names: list[str], into: list[str]) -> str:
        pairs = " and ".join(f"the {name} for {new}" for name, new in zip(names, into, strict=True))
        if len(names) == 1:
            [new] = into
            return f"Please {SWAP[verb]} the {names[0]}{self._part_of(order, names)} for {new}."
        return f"Please {SWAP[verb]} some things{self._part_of(order, names)}: {pairs}."

    def _part_of(self, order: Record, names: Sequence[str]) -> str:
        """Return of which order items are, where that needs more than their names."""
        if self._level >= 2 and not self._landmarks(order).isdisjoint(names):
            return " that I ordered"
        return f" of {self._reference(order)}"

    def _look_at_user(self) -> Action:
        return call("get_user", user_id=self._user["user_id"])


SWAP: dict[str, str] = {"modify": "change", "exchange": "exchange"}
_REMARKS = {
    "reason": "The reason is none that is accepted.",
    "owner": "The order is somebody else's.",
    "product": "It is another product.",
}


def _first(broken: list[Broken]) -> str | None:
    """Return the first rule that something breaks."""
    return broken[0].rule if broken else None


def _rules(broken: list[Broken]) -> list[str]:
    return sorted({rule for rule, _ in broken})


def _remark_on(broken: list[Broken]) -> str:
    return f"Not allowed: {broken[0].words}." if broken else "Allowed."


def new_address(rng: random.Random, old: Record) -> Record:
    """Another one, with another zip code."""
    zip = int(old["zip"])
    return make_address(rng, str(zip + rng.choice((-1, 1)) * rng.randrange(1, 9)))


def in_words(address: Record) -> str:
    """Return an address on one line."""
    return f"{address['street']}, {address['city']}, {address['state']}, {address['zip']}"


def options_in_words(options: dict[str, str]) -> str:
    """Return the options of a variant: "color red, size large"."""
    return ", ".join(f"{name} {value}" for name, value in options.items())


def in_dollars(cents: int) -> str:
    """Return an amount as the tools show it."""
    return f"{cents / 100:.2f}"
