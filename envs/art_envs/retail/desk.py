"""The env: a shop's customer service. Its tools keep to the policy, as far as a tool can know it.

What a tool cannot know is the assistant's part: whose order it is, the customer's true reason, the
customer's yes. Amounts are shown as "12.50" and kept in cents.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Container, Iterator
from typing import Any, ClassVar

from art_cli import Split, ToolError
from art_envs.retail import policy
from art_envs.retail.data import SCALES, make_database
from art_envs.retail.policy import (
    CANCEL_REASONS,
    DELIVERED,
    MODIFIED,
    PENDING,
    Broken,
)
from art_envs.retail.scenarios import SLOTS, Sampler
from art_envs.service.asking import Slots
from art_envs.service.desk import ServiceDesk
from art_envs.service.episode import ForbiddenError, Size, read, write
from art_envs.service.goal import Action, Goal, Kind, call
from art_envs.service.store import Record, Tables

OK = json.dumps({"ok": True})
MONEY = ("price", "amount", "balance")
ELSEWHERE = {"street": "7 Other Road", "city": "Reno", "state": "NV", "zip": "89501"}


class RetailDesk(ServiceDesk):
    """A shop's customer service: users, orders, returns and exchanges under a policy."""

    slots: ClassVar[Slots] = SLOTS
    reasons = policy.REASONS
    num_goals: ClassVar[dict[Size, dict[Split, int]]] = {
        size: scale.scenarios for size, scale in SCALES.items()
    }

    @classmethod
    def make_database(cls, size: Size) -> Tables:
        return make_database(size)

    @classmethod
    def draw_goal(
        cls, cfg: ServiceDesk.Config, rng: random.Random, user_id: str, kind: Kind
    ) -> Goal | None:
        tables, scale = cls.database(cfg), SCALES[cfg.size]
        return Sampler(rng, tables, tables["users"][user_id], cfg.level, scale).goal(kind)

    @classmethod
    def policy(cls, cfg: ServiceDesk.Config) -> str:
        return policy.DOCUMENT if cfg.size == "full" else policy.BRIEF

    # Tools that read.

    @read
    async def find_user_by_email(self, email: str) -> str:
        """Find a user."""
        return self._identify(lambda user: user["email"] == email.strip().lower())

    @read
    async def find_user_by_name_zip(self, first: str, last: str, zip: str) -> str:
        """Find a user."""
        asked = (first.strip().lower(), last.strip().lower(), zip.strip())
        return self._identify(
            lambda user: (
                (user["first"].lower(), user["last"].lower(), user["address"]["zip"]) == asked
            )
        )

    def is_identified(self) -> bool:
        return ("identity", self.goal["user_id"]) in self.store.seen

    def _identify(self, matches: Callable[[Record], bool]) -> str:
        for id, user in self.store.rows("users"):
            if matches(user):
                self.store.seen.add(("identity", id))
                return id
        raise ToolError("no such user")

    @read
    async def get_user(self, user_id: str) -> str:
        """Show a user's address, payment methods and orders."""
        return self._shown(self._get("users", user_id))

    @read
    async def get_order(self, order_id: str) -> str:
        """Show an order."""
        return self._shown(self._get("orders", order_id))

    @read
    async def get_product(self, product_id: str) -> str:
        """Show a product and its variants."""
        return self._shown(self._get("products", product_id))

    @read
    async def get_item(self, item_id: str) -> str:
        """Show a variant of a product."""
        for id, product in self.store.rows("products"):
            if item_id in product["variants"]:
                self._get("products", id)
                found = {"item_id": item_id, "product_id": id, "name": product["name"]}
                return self._shown(found | product["variants"][item_id])
        raise ToolError(f"no item {item_id!r}")

    @read
    async def list_product_types(self) -> str:
        """List the products with their ids."""
        return self._shown({product["name"]: id for id, product in self.store.rows("products")})

    def _shown(self, record: Record) -> str:
        return json.dumps(in_dollars(record, SCALES[self.cfg.size].hidden))

    # Tools that write.

    @write
    async def cancel_order(self, order_id: str, reason: str) -> str:
        """Cancel a pending order."""
        reason = reason.strip(" .").lower().replace("_", " ")
        order = self._get("orders", order_id)
        self._check([*policy.against_cancel(order), *policy.against_reason(reason)])
        order = self.store.edit("orders", order_id)
        order |= {"status": policy.CANCELLED, "cancel_reason": reason}
        for paid in list(order["paid"]):
            self._pay(order, paid["payment_id"], -paid["amount"])
        return OK

    @write
    async def modify_order_address(
        self, order_id: str, street: str, city: str, state: str, zip: str
    ) -> str:
        """Send a pending order elsewhere."""
        self._check(policy.against_address(self._get("orders", order_id)))
        order = self.store.edit("orders", order_id)
        order["address"] = {"street": street, "city": city, "state": state, "zip": zip}
        return OK

    @write
    async def modify_order_payment(self, order_id: str, payment_id: str) -> str:
        """Pay a pending order otherwise."""
        order, user = self._with_owner(order_id)
        self._check(policy.against_payment(order, user, payment_id))
        order = self.store.edit("orders", order_id)
        was, amount = order["paid"][-1]["payment_id"], policy.total(order)
        self._pay(order, was, -amount)
        self._pay(order, payment_id, amount)
        return OK

    @write
    async def modify_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_id: str
    ) -> str:
        """Change items of a pending order, once."""
        self._swap(order_id, item_ids, new_item_ids, payment_id, PENDING)
        order = self.store.edit("orders", order_id)
        products = self.database(self.cfg)["products"]
        self._pay(order, payment_id, policy.difference(order, products, item_ids, new_item_ids))
        for item in order["items"]:
            if item["item_id"] in item_ids:
                new = new_item_ids[item_ids.index(item["item_id"])]
                variant = self._get("products", item["product_id"])["variants"][new]
                item |= {"item_id": new, "price": variant["price"]}
                item["options"] = dict(variant["options"])
        order["status"] = MODIFIED
        return OK

    @write
    async def return_items(self, order_id: str, item_ids: list[str], payment_id: str) -> str:
        """Return items of a delivered order."""
        order, user = self._with_owner(order_id)
        self._check(policy.against_return(order, user, item_ids, payment_id))
        order = self.store.edit("orders", order_id)
        order |= {"status": policy.RETURNING, "returned": item_ids, "refund_to": payment_id}
        return OK

    @write
    async def exchange_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_id: str
    ) -> str:
        """Exchange items of a delivered order."""
        self._swap(order_id, item_ids, new_item_ids, payment_id, DELIVERED)
        order = self.store.edit("orders", order_id)
        order |= {
            "status": policy.EXCHANGING,
            "exchanged": dict(zip(item_ids, new_item_ids, strict=True)),
            "difference_by": payment_id,
        }
        return OK

    @write
    async def modify_user_address(
        self, user_id: str, street: str, city: str, state: str, zip: str
    ) -> str:
        """Change a user's address."""
        self._get("users", user_id)
        user = self.store.edit("users", user_id)
        user["address"] = {"street": street, "city": city, "state": state, "zip": zip}
        return OK

    def _get(self, table: str, id: str) -> Record:
        record = self.store.get(table, id)
        if record is None:
            hint = "; give the number without #" if id.startswith("#") else ""
            raise ToolError(f"no {table[:-1]} {id!r}{hint}")
        return record

    def _with_owner(self, order_id: str) -> tuple[Record, Record]:
        order = self._get("orders", order_id)
        return order, self._get("users", order["user_id"])

    def _check(self, broken: list[Broken]) -> None:
        """Raise ForbiddenError if the policy forbids a write, ToolError for a harmless mistake."""
        if broken:
            forbidden = any(rule for rule, _ in broken)
            raise (ForbiddenError if forbidden else ToolError)(broken[0].words)

    def _swap(
        self, order_id: str, items: list[str], new: list[str], payment_id: str, status: str
    ) -> None:
        order, user = self._with_owner(order_id)
        products = self.database(self.cfg)["products"]
        self._check(
            policy.against_swap(order, user, products, items, new, payment_id, status=status)
        )

    def _pay(self, order: Record, payment_id: str, amount: int) -> None:
        """Charge cents for an order. The balance of a gift card changes immediately."""
        order["paid"].append({"payment_id": payment_id, "amount": amount})
        method = self._get("users", order["user_id"])["payments"].get(payment_id)
        if method and method["kind"] == "gift card":
            user = self.store.edit("users", order["user_id"])
            user["payments"][payment_id]["balance"] -= amount

    # Possible writes for the goal's user.

    def legal_writes(self) -> Iterator[Action]:
        """Return writes of single items, returns of all items, and one other address."""
        user = self.store.peek("users", self.goal["user_id"])
        yield call("modify_user_address", user_id=user["user_id"], **ELSEWHERE)
        for id in user["orders"]:
            order = self.store.peek("orders", id)
            if order["status"] in (PENDING, MODIFIED):
                yield from self._of_pending(order, user)
            elif order["status"] == DELIVERED:
                yield from self._of_delivered(order, user)

    def _of_pending(self, order: Record, user: Record) -> Iterator[Action]:
        id = order["order_id"]
        if not policy.against_cancel(order):
            yield from (call("cancel_order", order_id=id, reason=r) for r in CANCEL_REASONS)
        yield call("modify_order_address", order_id=id, **ELSEWHERE)
        for payment_id in user["payments"]:
            if not policy.against_payment(order, user, payment_id):
                yield call("modify_order_payment", order_id=id, payment_id=payment_id)
        yield from self._swaps("modify_order_items", order, user, PENDING)

    def _of_delivered(self, order: Record, user: Record) -> Iterator[Action]:
        ids = [item["item_id"] for item in order["items"]]
        for returned in [ids, *([id] for id in ids if len(ids) > 1)]:
            for payment_id in user["payments"]:
                if not policy.against_return(order, user, returned, payment_id):
                    arguments = {"order_id": order["order_id"], "item_ids": returned}
                    yield call("return_items", **arguments, payment_id=payment_id)
        yield from self._swaps("exchange_items", order, user, DELIVERED)

    def _swaps(self, name: str, order: Record, user: Record, status: str) -> Iterator[Action]:
        products = self.database(self.cfg)["products"]
        for item in order["items"]:
            for new in products[item["product_id"]]["variants"]:
                for payment_id in user["payments"]:
                    asked = ([item["item_id"]], [new], payment_id)
                    if not policy.against_swap(order, user, products, *asked, status=status):
                        yield call(
                            name,
                            order_id=order["order_id"],
                            item_ids=asked[0],
                            new_item_ids=asked[1],
                            payment_id=payment_id,
                        )


def in_dollars(value: Any, hidden: Container[str] = (), field: str = "") -> Any:
    """Return a record as the tools show it, without the hidden fields."""
    if isinstance(value, dict):
        return {k: in_dollars(v, hidden, k) for k, v in value.items() if k not in hidden}
    if isinstance(value, list):
        return [in_dollars(item, hidden) for item in value]
    return f"{value / 100:.2f}" if field in MONEY else value
