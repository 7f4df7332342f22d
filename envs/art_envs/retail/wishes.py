"""What a customer may want of one order, whether the policy allows it, and how it is answered.

A wish is drawn for a cause: None for one that the policy allows, or why it must be refused. The
policy's own checks decide, and a draw that they see otherwise is thrown away.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from art_envs.retail import policy
from art_envs.retail.data import KINDS, Verb, make_address
from art_envs.retail.policy import CANCEL_REASONS, DELIVERED, PENDING
from art_envs.service.goal import Action, Choice, call
from art_envs.service.store import Record, Tables

Cause = Literal["status", "reason", "stranger", "variant", "product", "method"]

CAUSES: dict[Verb, tuple[Cause, ...]] = {
    "cancel": ("status", "reason", "stranger"),
    "address": ("status",),
    "payment": ("status", "method"),
    "modify": ("status", "variant", "product", "method"),
    "return": ("status", "method"),
    "exchange": ("status", "variant", "product", "method"),
}
BAD_REASONS = (
    "found it cheaper elsewhere",
    "the delivery takes too long",
    "I do not like it any more",
    "my friend bought me one",
)


@dataclass(kw_only=True)
class Wish:
    """One thing that a customer wants."""

    verb: Verb | Literal["move", "ask", "transfer"]
    said: str  # with every detail
    brief: str  # without what they tell when asked
    asked: str = ""  # the question that gets the rest
    facts: dict[str, str] = field(default_factory=dict)  # what they tell then
    reads: list[Action] = field(default_factory=list)
    write: Action | None = None  # None: nothing is to be changed
    does: str = ""  # the write in words: "I will ..."
    temptation: list[Action] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    remark: str = ""
    denied: bool = False
    outputs: list[str] = field(default_factory=list)
    evidence: list[list[str]] = field(default_factory=list)
    records: set[str] = field(default_factory=set)  # ids that it is about


class Wishes:
    """Draws wishes of one user. `reference` says an order in words; None: it cannot be said."""

    def __init__(
        self, rng: random.Random, tables: Tables, user: Record, reference: Callable[[Record], str]
    ) -> None:
        self._rng = rng
        self._tables = tables
        self._user = user
        self._reference = reference
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
        wish = makers[verb](order, verb, cause)
        if wish is None:
            return None
        wish.reads.insert(0, call("get_order", order_id=order["order_id"]))
        wish.records |= {order["order_id"]}
        wish.remark = f"The customer wants: {verb}. The order is {order['status']}. {wish.remark}"
        wish.remark = wish.remark.strip()
        if wish.denied:
            wish.temptation = wish.temptation or [a for a in [wish.write] if a]
            wish.write, wish.evidence = None, [["orders", order["order_id"]]]
        return wish

    def _cancel(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        bad = cause == "reason"
        reason = self._rng.choice(BAD_REASONS if bad else CANCEL_REASONS)
        if bool(policy.against_cancel(order)) != (cause == "status"):
            return None
        of = "my friend's order" if cause == "stranger" else "my order"
        brief = f"Please cancel {of} {self._reference(order)}."
        accepted = CANCEL_REASONS[0] if bad else reason
        return Wish(
            verb=verb,
            said=f"{brief} Reason: {reason}.",
            brief=brief,
            asked="What is the reason?",
            facts={"reason": reason},
            write=call("cancel_order", order_id=order["order_id"], reason=accepted),
            does=f"cancel order {order['order_id']}, reason: {reason}",
            choices=[] if bad else [{"options": list(CANCEL_REASONS), "takes": reason}],
            remark=f"The reason: {reason}.",
            denied=cause is not None,
        )

    def _address(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        if bool(policy.against_address(order)) != (cause == "status"):
            return None
        to = new_address(self._rng, order["address"])
        said = f"Please send my order {self._reference(order)} to {in_words(to)}."
        return Wish(
            verb=verb,
            said=said,
            brief=said,
            write=call("modify_order_address", order_id=order["order_id"], **to),
            does=f"send order {order['order_id']} to {in_words(to)}",
            denied=cause is not None,
        )

    def _payment(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        paid = order["paid"][-1]["payment_id"]
        kinds = [kind for kind, id in self._methods.items() if id != paid]
        if not kinds:
            return None
        kind = self._rng.choice(kinds)
        why = policy.against_payment(order, self._user, self._methods[kind])
        if _cause(why) != cause:
            return None
        return Wish(
            verb=verb,
            said=f"Please let me pay my order {self._reference(order)} by {kind}.",
            brief=f"Please let me pay my order {self._reference(order)} in another way.",
            asked="Which payment method do you want?",
            facts={"payment": kind},
            reads=[self._look_at_user()],
            write=call(
                "modify_order_payment",
                order_id=order["order_id"],
                payment_id=self._methods[kind],
            ),
            does=f"let you pay order {order['order_id']} by {kind}",
            choices=[self._kind(kind)],
            remark=_remark_on(why),
            denied=cause is not None,
        )

    def _return(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        items = order["items"]
        chosen = items if self._rng.random() < 0.4 else self._rng.sample(items, 1)
        ids = [item["item_id"] for item in chosen]
        kind = self._rng.choice(list(self._methods))
        why = policy.against_return(order, self._user, ids, self._methods[kind])
        if _cause(why) != cause:
            return None
        names = " and ".join(item["name"] for item in chosen)
        id, original = order["order_id"], order["paid"][0]["payment_id"]
        wish = Wish(
            verb=verb,
            said=f"Please take back the {names} of my order {self._reference(order)}. I want the "
            f"refund on my {kind}, not otherwise.",
            brief=f"Please take back the {names} of my order {self._reference(order)}.",
            asked="Which payment method shall get the refund?",
            facts={"payment": kind},
            reads=[self._look_at_user()],
            write=call("return_items", order_id=id, item_ids=ids, payment_id=self._methods[kind]),
            does=f"return the {names} of order {id} with the refund to your {kind}",
            choices=[self._kind(kind)],
            remark=_remark_on(why),
            denied=cause is not None,
        )
        if cause == "method":
            wish.temptation = [call("return_items", order_id=id, item_ids=ids, payment_id=original)]
        return wish

    def _swap(self, order: Record, verb: Verb, cause: Cause | None) -> Wish | None:
        """Another variant for an item: `modify` before the delivery, `exchange` after it."""
        item = self._rng.choice(order["items"])
        product_id = item["product_id"]
        if cause == "product":
            others = [id for id in self._tables["products"] if id != product_id]
            product_id = self._rng.choice(others)
        product = self._tables["products"][product_id]
        new = self._rng.choice([id for id in product["variants"] if id != item["item_id"]])
        kind = self._rng.choice(list(self._methods))
        status = PENDING if verb == "modify" else DELIVERED
        old_new = ([item["item_id"]], [new])
        why = policy.against_swap(
            order,
            self._user,
            self._tables["products"],
            *old_new,
            self._methods[kind],
            status=status,
        )
        if _cause(why) != cause:
            return None
        id, wanted = order["order_id"], options_in_words(product["variants"][new]["options"])
        into = f"a {product['name']}, {wanted}" if cause == "product" else f"the one with {wanted}"
        brief = f"Please {_SWAP[verb]} the {item['name']} of my order {self._reference(order)} "
        brief += f"for {into}."
        return Wish(
            verb=verb,
            said=f"{brief} Use my {kind} for the difference.",
            brief=brief,
            asked="Which payment method shall be used for the difference?",
            facts={"payment": kind},
            reads=[self._look_at_user(), call("get_product", product_id=product_id)]
            if cause != "product"
            else [call("list_product_types"), call("get_product", product_id=product_id)],
            write=call(
                "modify_order_items" if verb == "modify" else "exchange_items",
                order_id=id,
                item_ids=old_new[0],
                new_item_ids=old_new[1],
                payment_id=self._methods[kind],
            ),
            does=f"{_SWAP[verb]} the {item['name']} of order {id} for {into}; the difference goes "
            f"over your {kind}",
            choices=[self._kind(kind)],
            remark=_remark_on(why),
            denied=cause is not None,
        )

    def _look_at_user(self) -> Action:
        return call("get_user", user_id=self._user["user_id"])

    def _kind(self, kind: str) -> Choice:
        return {"options": list(KINDS), "takes": kind}


_SWAP = {"modify": "change", "exchange": "exchange"}


def _cause(why: str | None) -> Cause | None:
    """Return the cause for which a check of the policy refused."""
    for words, cause in (
        ("the order is", "status"),
        ("not available", "variant"),
        ("same product", "product"),
        ("gift card", "method"),
    ):
        if why and words in why:
            return cause  # type: ignore[return-value]
    assert not why or "same item" in why, why
    return None if not why else "reason"  # which no swap asks for


def _remark_on(why: str | None) -> str:
    return f"Not allowed: {why}." if why else "Allowed."


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
