"""The shop's rules, once: as checks, for the tools and the generator, and as the document.

A check returns why something is refused, in words for the assistant, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from art_envs.service.store import Record

PENDING, MODIFIED, PROCESSED = "pending", "pending (items modified)", "processed"
DELIVERED, CANCELLED = "delivered", "cancelled"
RETURNING, EXCHANGING = "return requested", "exchange requested"

CancelReason = Literal["no longer needed", "ordered by mistake"]
CANCEL_REASONS: tuple[CancelReason, ...] = ("no longer needed", "ordered by mistake")


def against_cancel(order: Record) -> str | None:
    """Return what the policy has against cancelling a whole order."""
    return _unless(order, PENDING, "cancelled")


def against_address(order: Record) -> str | None:
    """Return what the policy has against another address for an order."""
    return _unless(order, (PENDING, MODIFIED), "sent elsewhere")


def against_payment(order: Record, user: Record, payment_id: str) -> str | None:
    """Return what the policy has against paying an order otherwise."""
    if payment_id == order["paid"][-1]["payment_id"]:
        return "the order is already paid with this method"
    return _unless(order, (PENDING, MODIFIED), "paid otherwise") or against_method(
        user, payment_id, total(order)
    )


def against_return(
    order: Record, user: Record, item_ids: Sequence[str], payment_id: str
) -> str | None:
    """Return what the policy has against sending items back."""
    method = user["payments"].get(payment_id)
    return (
        _unless(order, DELIVERED, "returned")
        or _unless_held(order, item_ids)
        or (None if method else f"the user has no payment method {payment_id!r}")
        or (
            None
            if payment_id == order["paid"][0]["payment_id"] or method["kind"] == "gift card"
            else "a refund goes to the original payment method or to a gift card"
        )
    )


def against_swap(
    order: Record,
    user: Record,
    products: Mapping[str, Record],
    item_ids: Sequence[str],
    new_item_ids: Sequence[str],
    payment_id: str,
    *,
    status: str,
) -> str | None:
    """Return what it has against other variants: of a pending order, or of a delivered one."""
    done = "modified" if status == PENDING else "exchanged"
    why = _unless(order, status, done) or _unless_held(order, item_ids)
    if why or len(item_ids) != len(new_item_ids):
        return why or "give one new item for each item"
    held = {item["item_id"]: item for item in order["items"]}
    for old, new in zip(item_ids, new_item_ids, strict=True):
        variant = products[held[old]["product_id"]]["variants"].get(new)
        if variant is None:
            return f"item {new!r} is not of the same product as {old!r}"
        if new == old or not variant["available"]:
            return f"item {new!r} is {'the same item' if new == old else 'not available'}"
    return against_method(user, payment_id, difference(order, products, item_ids, new_item_ids))


def against_method(user: Record, payment_id: str, amount: int) -> str | None:
    """Return what it has against paying so many cents so; less than nothing is a refund."""
    method = user["payments"].get(payment_id)
    if method is None:
        return f"the user has no payment method {payment_id!r}"
    if method["kind"] == "gift card" and method["balance"] < amount:
        return "the gift card does not cover the amount"
    return None


def total(order: Record) -> int:
    """Return what the items of an order cost, in cents."""
    return sum(item["price"] for item in order["items"])


def difference(
    order: Record, products: Mapping[str, Record], item_ids: Sequence[str], new: Sequence[str]
) -> int:
    """Return what other variants cost more than the old ones, in cents."""
    held = {item["item_id"]: item for item in order["items"]}
    return sum(
        products[held[old]["product_id"]]["variants"][after]["price"] - held[old]["price"]
        for old, after in zip(item_ids, new, strict=True)
    )


def _unless(order: Record, allowed: str | tuple[str, ...], done: str) -> str | None:
    statuses = (allowed,) if isinstance(allowed, str) else allowed
    if order["status"] in statuses:
        return None
    return f"the order is {order['status']}; only a {statuses[0]} order can be {done}"


def _unless_held(order: Record, item_ids: Sequence[str]) -> str | None:
    held = {item["item_id"] for item in order["items"]}
    missing = [id for id in item_ids if id not in held]
    if missing or not item_ids:
        return f"the order has no item {missing[0]!r}" if missing else "give at least one item"
    return "an item is named twice" if len(set(item_ids)) < len(item_ids) else None


_REASONS = " or ".join(f'"{reason}"' for reason in CANCEL_REASONS)

DOCUMENT = f"""\
You are the customer service of an online shop. You may look things up and change orders and \
addresses with your tools. Follow this policy.

# Always
- First find out who the customer is, by email, or by first name, last name and zip code, even \
if he gives a user id or an order number. Serve only this one customer and only his own orders.
- Before each change, say exactly what you will do and ask for an explicit yes. Then do it.
- Call one tool at a time. Invent nothing: what you do not know, look up or ask for.
- If the policy does not allow a request, say clearly that you cannot do it. Change nothing else \
in its place, unless the customer asks for that.
- Transfer to a human if, and only if, a request cannot be handled with your tools at all, such as \
a technical problem, a lost parcel or a complaint about staff. A request that the policy forbids \
is refused, not transferred.

# Orders
An order is {PENDING}, {MODIFIED}, {PROCESSED}, {DELIVERED}, {CANCELLED}, {RETURNING} \
or {EXCHANGING}.

## Cancel
- Only an order that is {PENDING}, and only as a whole.
- Only for one of these reasons: {_REASONS}. Any other reason must be refused; do not put another \
one in its place.
- An order whose items were modified can no longer be cancelled.

## Modify
- Address and payment method: of an order that is {PENDING} or {MODIFIED}.
- A new payment method must differ from the old one; a gift card must cover the whole amount.
- Items: only of an order that is {PENDING}, and only once: name all items at a time. Each new \
item must be an available variant of the same product. The customer names a method that pays or \
receives the difference; a gift card must cover it.

## Return
- Only items of an order that is {DELIVERED}.
- The refund goes to the original payment method or to a gift card of the customer.

## Exchange
- Only items of an order that is {DELIVERED}, only once, for available variants of the same \
product. The difference is paid or refunded as for a modification.

An order can be returned or exchanged once, and not both.
"""

BRIEF = (
    "You are a shop assistant. First find the user, then look the order up. "
    f"Cancel or modify only {PENDING} orders; return or exchange only {DELIVERED} ones. "
    f"Cancel only if {' or '.join(CANCEL_REASONS)}. Refund only to the original payment or a gift "
    "card. New items must be available. Refuse anything else with: sorry."
)
