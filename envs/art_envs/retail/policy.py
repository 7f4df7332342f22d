"""The shop's rules, once: as checks, for the tools and the generator, and as the document.

A check returns all that the policy has against something, each as (rule, words for the assistant).
The rule "" is of what makes no sense, whatever the policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from art_envs.service.store import Record

PENDING, MODIFIED, PROCESSED = "pending", "pending (items modified)", "processed"
DELIVERED, CANCELLED = "delivered", "cancelled"
RETURNING, EXCHANGING = "return requested", "exchange requested"
REPLACING = "replacement sent"

CANCEL_REASONS = ("no longer needed", "ordered by mistake")
REASONS = {  # reasons for refusals -> the sentence that the customer hears
    "status": "The status of the order does not allow it.",
    "reason": "We cannot cancel for this reason.",
    "owner": "We can only serve you about what is your own.",
    "variant": "This item is not available.",
    "product": "An item can only be changed for one of the same product.",
    "method": "This payment method cannot be used for it.",
}


class Broken(NamedTuple):
    """A violation of the policy by a request."""

    rule: str  # key of REASONS
    words: str


def against_cancel(order: Record) -> list[Broken]:
    """Return the policy's objections to cancelling a whole order."""
    return _unless(order, PENDING, "cancelled")


def against_reason(reason: str) -> list[Broken]:
    """Return the policy's objections to a reason for a cancellation."""
    accepted = reason in CANCEL_REASONS
    return [] if accepted else [Broken("reason", f"{reason!r} is no reason to cancel an order")]


def against_address(order: Record) -> list[Broken]:
    """Return the policy's objections to a new address for an order."""
    return _unless(order, (PENDING, MODIFIED), "sent elsewhere")


def against_payment(order: Record, user: Record, payment_id: str) -> list[Broken]:
    """Return the policy's objections to a new payment method for an order."""
    if payment_id == order["paid"][-1]["payment_id"]:
        return [Broken("method", "the order is already paid with this method")]
    return [
        *_unless(order, (PENDING, MODIFIED), "paid otherwise"),
        *against_method(user, payment_id, total(order)),
    ]


def against_return(
    order: Record, user: Record, item_ids: Sequence[str], payment_id: str
) -> list[Broken]:
    """Return the policy's objections to returning items."""
    broken = [*_unless(order, DELIVERED, "returned"), *_unless_held(order, item_ids)]
    method = user["payments"].get(payment_id)
    if method is None:
        return [*broken, _no_method(payment_id)]
    if payment_id == order["paid"][0]["payment_id"] or method["kind"] == "gift card":
        return broken
    why = "a refund goes to the original payment method or to a gift card"
    return [*broken, Broken("method", why)]


def against_replacement(order: Record, item_id: str) -> list[Broken]:
    """Return the policy's objections to replacing a defective item by the same item."""
    return [*_unless(order, DELIVERED, "replaced"), *_unless_held(order, [item_id])]


def against_swap(
    order: Record,
    user: Record,
    products: Mapping[str, Record],
    item_ids: Sequence[str],
    new_item_ids: Sequence[str],
    payment_id: str,
    *,
    status: str,
) -> list[Broken]:
    """Return the policy's objections to other variants in a pending or a delivered order."""
    done = "modified" if status == PENDING else "exchanged"
    broken, odd = _unless(order, status, done), _unless_held(order, item_ids)
    if len(item_ids) != len(new_item_ids):
        odd = [*odd, Broken("", "give one new item for each item")]
    if odd:
        return [*broken, *odd]
    held = {item["item_id"]: item for item in order["items"]}
    for old, new in zip(item_ids, new_item_ids, strict=True):
        variant = products[held[old]["product_id"]]["variants"].get(new)
        if variant is None:
            exists = any(new in product["variants"] for product in products.values())
            why = f"item {new!r} is not of the same product as {old!r}"
            broken.append(Broken("product", why) if exists else Broken("", f"no item {new!r}"))
        elif new == old:
            broken.append(Broken("", f"item {new!r} is the same item"))
        elif not variant["available"]:
            broken.append(Broken("variant", f"item {new!r} is not available"))
    if any(rule in ("product", "") for rule, _ in broken):
        return broken
    return [
        *broken,
        *against_method(user, payment_id, difference(order, products, item_ids, new_item_ids)),
    ]


def against_method(user: Record, payment_id: str, amount: int) -> list[Broken]:
    """Return the policy's objections to paying `amount` cents this way; negative is a refund."""
    method = user["payments"].get(payment_id)
    if method is None:
        return [_no_method(payment_id)]
    if method["kind"] == "gift card" and method["balance"] < amount:
        return [Broken("method", "the gift card does not cover the amount")]
    return []


def _no_method(payment_id: str) -> Broken:
    return Broken("", f"the user has no payment method {payment_id!r}")


def total(order: Record) -> int:
    """Return the total price of an order's items in cents."""
    return sum(item["price"] for item in order["items"])


def difference(
    order: Record, products: Mapping[str, Record], item_ids: Sequence[str], new: Sequence[str]
) -> int:
    """Return the price difference of the new variants to the old ones, in cents."""
    held = {item["item_id"]: item for item in order["items"]}
    return sum(
        products[held[old]["product_id"]]["variants"][after]["price"] - held[old]["price"]
        for old, after in zip(item_ids, new, strict=True)
    )


def _unless(order: Record, allowed: str | tuple[str, ...], done: str) -> list[Broken]:
    statuses = (allowed,) if isinstance(allowed, str) else allowed
    if order["status"] in statuses:
        return []
    why = f"the order is {order['status']}; only a {statuses[0]} order can be {done}"
    return [Broken("status", why)]


def _unless_held(order: Record, item_ids: Sequence[str]) -> list[Broken]:
    held = {item["item_id"] for item in order["items"]}
    missing = [id for id in item_ids if id not in held]
    if missing or not item_ids:
        what = f"the order has no item {missing[0]!r}" if missing else "give at least one item"
        return [Broken("", what)]
    twice = len(set(item_ids)) < len(item_ids)
    return [Broken("", "an item is named twice")] if twice else []


_REASONS = " or ".join(f'"{reason}"' for reason in CANCEL_REASONS)

DOCUMENT = f"""\
You are the customer service of an online shop. You help customers to cancel, change, return and \
exchange what they ordered, to change their address, and you answer questions about their orders, \
their gift card and the products. Follow this policy in everything that you do.

# The customer
- First find out who the customer is: by email, or by first name, last name and zip code. Do so \
even if they give you a user id or an order number at once; these are no proof of who they are. \
Before that, do, tell, refuse and hand over nothing.
- Serve only this one customer, and only about their own account and their own orders. What \
belongs to anybody else, a friend or a relative too, is refused (owner).
- Customers seldom know their order numbers. Look at their profile and their orders until you \
have found the one that they describe.
- Invent nothing. What you do not know, look up with your tools or ask the customer for. Give no \
advice and no opinion of your own.

# What counts
- Write to the customer to ask for something, to explain, and to say that you are done. What you \
write is talk: it changes nothing, and it is neither a yes nor a no.
- confirm: before each change, call confirm with that one change, exactly as you will make it. \
Make no other call in that turn: the customer answers first. Only after a yes make this change, \
and no other; for the next one ask again. If they say no or want something else, do not make it.
- Decide by this policy, before you call a tool that changes something. A call that the policy \
forbids counts against you even where the tool refuses it: never try whether it works.
- refuse: if the policy does not allow a request, call refuse with the reason (below). It must be \
true. If the customer insists, refuse again; there are no exceptions. Do nothing else in its \
place unless the customer asks for that.
- tell: answer a question by calling tell with the value alone, once you have looked it up. A \
wrong value cannot be taken back, and nothing is told that was not asked for.
- transfer: hand over to a human if, and only if, a request cannot be handled with your tools at \
all, such as a technical problem, a lost parcel or a complaint about staff. What the policy \
forbids is refused, not transferred.
- Make one call at a time, and not while you write to the customer.
- Do what was asked for, all of it, and nothing more. Customers may ask for several things, one \
after the other, and may change their mind until they have said yes.

# The shop
- A profile holds the customer's name, email, address, payment methods and order numbers. A \
payment method is a credit card, a paypal account or a gift card; only a gift card has a balance, \
and it cannot pay more than that.
- There are some forty types of products. Each has variants, which differ in options such as \
color or size, in price, and in whether they are available. A product id names the type, an item \
id the variant; they are not related.
- An order is {PENDING}, {MODIFIED}, {PROCESSED}, {DELIVERED}, {CANCELLED}, {RETURNING} or \
{EXCHANGING}. It holds items, the address that it is sent to, and what was paid and returned, \
with which method.
- Most can be changed only while it is {PENDING}, or only once it is {DELIVERED}. Items of an \
order can be modified, returned or exchanged once: make sure that everything that the customer \
wants of them is in the one call.

# Cancel an order
- Only an order that is {PENDING} can be cancelled, and only as a whole. One that is {MODIFIED} \
can no longer be cancelled (status).
- The reason must be one of these: {_REASONS}. Ask for it if the customer does not say it. Any \
other reason is refused (reason); do not put another one in its place.
- The amount goes back to the methods that paid: to a gift card at once, otherwise in some days.

# Change a pending order
- The address and the payment method can be changed while the order is {PENDING} or {MODIFIED}.
- A new payment method pays the whole amount, and the old one gets it back. It must be another \
one than before and one of the customer's profile; a gift card must cover the amount (method).
- Items can be changed only while it is {PENDING}, and only once; then it is {MODIFIED}. Name all \
items that change in one call.
- Each new item must be an available variant (variant) of the same product (product): a shirt \
cannot become a desk.
- The customer names one method that pays or receives the difference in price. A gift card must \
cover what is to be paid (method).

# Return items
- Only items of an order that is {DELIVERED} can be returned (status): one, some or all of them, \
in one call.
- The refund goes to the method that the order was paid with, or to a gift card of the customer's \
profile; to no other (method).

# Exchange items
- Only items of an order that is {DELIVERED} can be exchanged (status), for available variants of \
the same product (variant, product). Name all of them in one call.
- The difference is paid or refunded as for a change of a pending order (method).
- An order can be returned or exchanged once, and not both.

# Change an address
- The customer's own address can always be changed. That does not change where an order goes: do \
that only if it is asked for too.

# Reasons of a refusal
- status: the status of the order does not allow it
- reason: a cancellation for a reason that is not accepted
- owner: it belongs to somebody else
- variant: the item that is wanted is not available
- product: the item that is wanted is of another product
- method: the payment method cannot be used for it
If several are true, any of them will do.
"""

BRIEF = (
    "You are a shop assistant. First find the user, then look the order up. "
    f"Cancel or modify only {PENDING} orders; return or exchange only {DELIVERED} ones. "
    f"Cancel only if {' or '.join(CANCEL_REASONS)}. Refund only to the original payment or a gift "
    "card. Refuse anything else with its reason: status, reason, owner or method; a change that is "
    "tried and not allowed counts."
)
