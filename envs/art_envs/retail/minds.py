"""Minds that customers change: what they want instead, once they are asked to confirm a wish.

The first wish could be granted. The second is drawn from it: another variant, an item more or less,
another address or payment method, nothing at all, or something else about the same order. The
policy's own checks decide what becomes of it, as of every wish.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from art_envs.retail import policy
from art_envs.retail.data import VERBS
from art_envs.retail.policy import DELIVERED, PENDING, Broken
from art_envs.retail.wishes import (
    CAUSES,
    SWAP,
    Cause,
    Wish,
    Wishes,
    in_words,
    new_address,
    options_in_words,
)
from art_envs.service.goal import Action, call
from art_envs.service.personas import BACK, KEEP, reconsidered
from art_envs.service.store import Record, Tables

TRIES = 40  # to draw a second wish that fits


class Minds:
    """Draws second thoughts of one user."""

    def __init__(self, rng: random.Random, tables: Tables, user: Record, wishes: Wishes) -> None:
        self._rng = rng
        self._tables = tables
        self._user = user
        self._wishes = wishes

    def changed(self, wishes: Sequence[Wish | None]) -> list[Wish | None]:
        """Return the wishes, one of which the customer thinks better of. None: there is none such.

        Only a wish that is not the last one comes to nothing, and only beside another change: the
        customer goes on to the next once they have said so, and who never asks for their yes does
        not get there.
        """
        able = [i for i, wish in enumerate(wishes) if wish and wish.write and not wish.reasons]
        if not able or None in wishes:
            return [None]
        at = self._rng.choice(able)
        first, how = wishes[at], self._rng.random()
        assert first
        if how < 0.4 and at < len(wishes) - 1 and len(able) > 1:
            then = Wish(verb="keep", said=KEEP, brief=KEEP)
        else:
            then = self._other(first, forbidden=False)
        if then and then.verb != "keep" and how > 0.85:
            then.rather = _again(first, BACK)
        changed = replace(first, rather=then) if then else None
        return [changed if i == at else wish for i, wish in enumerate(wishes)]

    def forbidden(self, first: Wish, *, back: bool) -> Wish | None:
        """Return a wish that becomes a forbidden one; with `back`, then the first again."""
        then = self._other(first, forbidden=True)
        if then is None:
            return None
        then.otherwise = _again(first, "") if back else None
        return replace(first, rather=then)

    def _other(self, first: Wish, *, forbidden: bool) -> Wish | None:
        """Return another wish about the same records; None where none is found."""
        drawing: list[Callable[[Wish], Wish | None]] = [self._amended, self._amended, self._about]
        for _ in range(TRIES):
            wish = self._rng.choice(drawing)(first)
            if not wish or not wish.write or not first.write:
                continue
            if bool(wish.reasons) == forbidden and wish.write != first.write:
                is_alike = wish.write["name"] == first.write["name"]
                said = reconsidered(self._rng, wish.said, is_alike=is_alike)
                return replace(wish, said=said, brief=said)
        return None

    def _about(self, first: Wish) -> Wish | None:
        """Return any wish about the same order."""
        orders = [id for id in first.records if id in self._tables["orders"]]
        if not orders:  # they move
            return None
        # What does not work is neither returned nor exchanged for that.
        verbs = VERBS if first.verb != "replace" else ("cancel", "address", "payment")
        verb = self._rng.choice(verbs)
        causes: list[Cause | None] = [None, *(c for c in CAUSES[verb] if c != "owner")]
        cause = self._rng.choice(causes)
        return self._wishes.draw(self._tables["orders"][orders[0]], verb, cause)

    def _amended(self, first: Wish) -> Wish | None:
        """Return the same wish with one thing of it otherwise."""
        assert first.write
        said = first.write["arguments"]
        order = self._tables["orders"].get(said.get("order_id", ""))
        if "zip" in said:
            to = new_address(self._rng, said)
            words = f"It has to be this address: {in_words(to)}."
            return self._judged(first, order, to, words)
        if order is None or "payment_id" not in said:
            return None  # there is nothing in a cancellation that could be otherwise
        ways = [self._other_method, self._one_more, self._one_less, self._other_variant]
        return self._rng.choice(ways if "item_ids" in said else ways[:1])(first, order, said)

    def _other_method(self, first: Wish, order: Record, said: Record) -> Wish | None:
        others = [id for id in self._user["payments"] if id != said["payment_id"]]
        if not others:
            return None
        id = self._rng.choice(others)
        words = f"Use my {self._user['payments'][id]['kind']} for it, the rest as I said."
        return self._judged(first, order, {"payment_id": id}, words)

    def _one_more(self, first: Wish, order: Record, said: Record) -> Wish | None:
        others = [i for i in order["items"] if i["item_id"] not in said["item_ids"]]
        if not others:
            return None
        item = self._rng.choice(others)
        before = order["items"][: order["items"].index(item)]
        at = sum(i["item_id"] in said["item_ids"] for i in before)
        more = {"item_ids": _with(said["item_ids"], at, item["item_id"])}
        words = f"Please take back the {item['name']} of this order as well, with the rest."
        if "new_item_ids" not in said:
            return self._judged(first, order, more, words)
        new, into, look = self._variant(item, item["item_id"])
        more["new_item_ids"] = _with(said["new_item_ids"], at, new)
        words = f"Please {SWAP[first.verb]} the {item['name']} of this order as well, for {into}."
        return self._judged(first, order, more, words, look)

    def _one_less(self, first: Wish, order: Record, said: Record) -> Wish | None:
        at, lists = self._rng.randrange(len(said["item_ids"])), ("item_ids", "new_item_ids")
        if len(said["item_ids"]) == 1:
            return None
        [item] = [i for i in order["items"] if i["item_id"] == said["item_ids"][at]]
        less = {k: [*said[k][:at], *said[k][at + 1 :]] for k in lists if k in said}
        words = f"Leave the {item['name']} out and do only the rest, as I said."
        return self._judged(first, order, less, words)

    def _other_variant(self, first: Wish, order: Record, said: Record) -> Wish | None:
        if "new_item_ids" not in said:
            return None
        at, ids = self._rng.randrange(len(said["item_ids"])), list(said["new_item_ids"])
        [item] = [i for i in order["items"] if i["item_id"] == said["item_ids"][at]]
        new, into, look = self._variant(item, ids[at])
        ids[at] = new
        words = f"For the {item['name']} I want {into}, the rest as I said."
        return self._judged(first, order, {"new_item_ids": ids}, words, look)

    def _variant(self, item: Record, wanted: str) -> tuple[str, str, Action]:
        """Return a variant that is neither this one nor that, in words, and where it is read."""
        variants = self._tables["products"][item["product_id"]]["variants"]
        new = self._rng.choice([id for id in variants if id not in (item["item_id"], wanted)])
        into = f"the one with {options_in_words(variants[new]['options'])}"
        return new, into, call("get_product", product_id=item["product_id"])

    def _judged(
        self, first: Wish, order: Record | None, new: Record, words: str, *reads: Action
    ) -> Wish | None:
        """Return the first wish with new arguments; None for what makes no sense at all."""
        assert first.write
        write = call(first.write["name"], **first.write["arguments"] | new)
        rules = sorted({rule for rule, _ in self._against(order, write)})
        if "" in rules:
            return None
        evidence = [["orders", order["order_id"]]] if rules and order else []
        return replace(
            first,
            said=words,
            brief=words,
            reads=[*first.reads, *reads],
            write=write,
            reasons=rules,
            evidence=evidence,
            temptation=[write] if rules else [],
            otherwise=None,
        )

    def _against(self, order: Record | None, write: Action) -> list[Broken]:
        """Return what the policy has against a write that changes an amended wish."""
        arguments, products = write["arguments"], self._tables["products"]
        if order is None or write["name"] == "modify_order_address":
            return policy.against_address(order) if order else []
        method = arguments["payment_id"]
        if write["name"] == "modify_order_payment":
            return policy.against_payment(order, self._user, method)
        ids = arguments["item_ids"]
        if write["name"] == "return_items":
            return policy.against_return(order, self._user, ids, method)
        status = PENDING if write["name"] == "modify_order_items" else DELIVERED
        swap = (ids, arguments["new_item_ids"], method)
        return policy.against_swap(order, self._user, products, *swap, status=status)


def _again(first: Wish, words: str) -> Wish:
    """Return a wish that comes up a second time; what it asks of the customer has been done."""
    said = f"{words} {first.said}".strip()
    return replace(first, said=said, brief=said, asks=[], otherwise=None)


def _with(ids: list[str], at: int, id: str) -> list[str]:
    return [*ids[:at], id, *ids[at:]]
