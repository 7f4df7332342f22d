"""The shop's database: generated, the same on every machine.

    users     {user_id, first, last, email, address, payments: {id: {kind, balance?}}, orders: [id]}
    products  {product_id, name, variants: {item_id: {options, price, available}}}
    orders    {order_id, user_id, status, address, items: [{item_id, product_id, name, options,
               price}], paid: [{payment_id, amount}]}; tools add what was changed

All amounts are cents. An order holds no product twice, and a user has no two payment methods of one
kind.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, get_args

from art_cli import Split, seed_of
from art_envs.retail.policy import CANCELLED, DELIVERED, MODIFIED, PENDING, PROCESSED
from art_envs.service.episode import Size
from art_envs.service.store import Record, Tables

FIRST = (
    "Mia", "Noah", "Ava", "Liam", "Emma", "Yusuf", "Sofia", "Raj", "Olivia", "Ethan", "Mei",
    "Fatima", "Isaac", "Chen", "Anya", "James", "Harper", "Omar", "Daiki", "Juan", "Aarav", "Ivan",
    "Lena", "Lucas",
)  # fmt: skip
LAST = (
    "Rossi", "Kim", "Silva", "Patel", "Moore", "Garcia", "Nguyen", "Brown", "Khan", "Lopez", "Sato",
    "Muller", "Ito", "Davis", "Santos", "Wilson", "Jackson", "Hernandez", "Lee", "Ahmed", "Kovacs",
    "Novak", "Anderson", "Johnson",
)  # fmt: skip
CITIES = (
    ("Austin", "TX"), ("Boston", "MA"), ("Chicago", "IL"), ("Denver", "CO"), ("Houston", "TX"),
    ("Miami", "FL"), ("Phoenix", "AZ"), ("Portland", "OR"), ("Seattle", "WA"), ("Dallas", "TX"),
    ("Columbus", "OH"), ("San Diego", "CA"), ("Nashville", "TN"), ("Detroit", "MI"),
)  # fmt: skip
STREETS = (
    "Oak",
    "Elm",
    "Pine",
    "Lake",
    "Hill",
    "Park",
    "Main",
    "Cedar",
    "River",
    "Sunset",
    "Maple",
)
NAMES = (
    "mug", "lamp", "shirt", "chair", "phone", "shoes", "bag", "watch", "kettle", "tablet", "jacket",
    "desk", "bottle", "camera", "backpack", "blender", "bicycle", "bookcase", "clock", "drone",
    "earbuds", "e-reader", "fan", "gloves", "grill", "headphones", "helmet", "hoodie", "jigsaw",
    "keyboard", "laptop", "mouse", "notebook", "oven", "perfume", "puzzle", "router", "skateboard",
    "speaker", "suitcase", "sunglasses", "sweater", "tent", "thermostat", "toaster", "towel",
    "umbrella", "vacuum cleaner", "wallet", "yoga mat",
)  # fmt: skip
OPTIONS = {
    "color": ("black", "white", "red", "blue", "green", "silver", "purple", "orange"),
    "size": ("small", "medium", "large", "extra large"),
    "material": ("cotton", "leather", "steel", "plastic", "wood", "ceramic"),
    "edition": ("standard", "plus", "deluxe", "travel"),
}
Verb = Literal["cancel", "address", "payment", "modify", "return", "exchange"]
VERBS: tuple[Verb, ...] = get_args(Verb)
CARD, PAYPAL, GIFT_CARD = KINDS = ("credit card", "paypal", "gift card")  # of payment
STATUSES = {PENDING: 38, MODIFIED: 4, DELIVERED: 38, PROCESSED: 10, CANCELLED: 10}  # percent


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The size parameters of the database."""

    users: int
    products: int
    variants: int
    orders: int
    items: tuple[int, ...]  # of an order, drawn from
    digits: dict[str, int]  # digits of the number in an id
    pairs: bool  # ids of users and orders are two numbers: u65+31, W20-48
    scenarios: dict[Split, int]
    by_email: float  # share of customers identified by email; the others by name and zip code
    verbs: tuple[Verb, ...]  # actions that customers may request
    hidden: tuple[str, ...] = ()  # fields that the tools do not show


SCALES: dict[Size, Scale] = {
    "full": Scale(
        users=200,
        products=40,
        variants=10,
        orders=500,
        items=(1, 1, 2, 2, 3, 3, 4, 5),
        digits={"user": 4, "product": 10, "item": 10, "order": 7, "zip": 5},
        pairs=False,
        scenarios={"train": 800, "val": 100, "test": 100},
        by_email=0.5,
        verbs=VERBS,
    ),
    "small": Scale(
        users=1600,
        products=12,
        variants=3,
        orders=4000,
        items=(1,),
        # A very small model copies two short numbers more often than a name or a longer number, but
        # not with every seed.
        digits=dict.fromkeys(("user", "product", "item"), 2),
        pairs=True,
        scenarios={"train": 4000, "val": 150, "test": 150},
        by_email=1.0,
        verbs=("cancel", "payment", "return"),
        hidden=("first", "last", "email", "address", "orders", "order_id", "product_id"),
    ),
}


class _Ids:
    """Unique ids: a prefix and a random number with a given number of digits."""

    def __init__(self, rng: random.Random, digits: dict[str, int]) -> None:
        self._rng = rng
        self._digits = digits
        self._used: set[str] = set()

    def new(self, of: str, prefix: str = "") -> str:
        low = 10 ** (self._digits[of] - 1)
        while (id := f"{prefix}{self._rng.randrange(low, 10 * low)}") in self._used:
            continue
        self._used.add(id)
        return id

    def new_pair(self, prefix: str, between: str) -> str:
        """Return two numbers of two digits.

        `between` is another mark for each prefix: a very small model copies what follows the token
        that it has just written, and would take the second number of the wrong id.
        """
        while (id := f"{prefix}{self._rng.randrange(1000, 10000)}") in self._used or id[-2] == "0":
            continue
        self._used.add(id)
        return f"{id[:-2]}{between}{id[-2:]}"


def make_database(size: Size) -> Tables:
    """Return users, products and orders."""
    scale = SCALES[size]
    rng = random.Random(seed_of("retail", size))
    ids = _Ids(rng, scale.digits)
    products = dict(_product(rng, ids, name, scale.variants) for name in NAMES[: scale.products])
    users = dict(_user(rng, ids, size) for _ in range(scale.users))
    owners = [*users, *users]  # at least two orders each
    owners += [rng.choice(list(users)) for _ in range(scale.orders - len(owners))]
    orders: dict[str, Record] = {}
    for owner in owners:
        id, order = _order(rng, ids, users[owner], products, scale)
        orders[id] = order
        users[owner]["orders"].append(id)
    return {"users": users, "products": products, "orders": orders}


def _product(rng: random.Random, ids: _Ids, name: str, num_variants: int) -> tuple[str, Record]:
    names = ["size"] if num_variants <= 3 else rng.sample(sorted(OPTIONS), 2)
    values = [rng.sample(OPTIONS[n], min(len(OPTIONS[n]), 4)) for n in names]
    if len(names) == 1:
        combinations = [[value] for value in OPTIONS["size"][:num_variants]]
    else:
        combinations = rng.sample([[a, b] for a in values[0] for b in values[1]], num_variants)
    base = rng.randrange(1000, 50000)
    variants: dict[str, Record] = {}
    for combination in combinations:
        variants[ids.new("item")] = {
            "options": dict(zip(names, combination, strict=True)),
            "price": base + rng.randrange(0, base // 3),
            "available": rng.random() < 0.64,
        }
    id = ids.new("product")
    return id, {"product_id": id, "name": name, "variants": variants}


def _user(rng: random.Random, ids: _Ids, size: Size) -> tuple[str, Record]:
    first, last = rng.choice(FIRST), rng.choice(LAST)
    if size == "small":
        id = ids.new_pair("u", "+")
        email, zip = f"{id}@x.com", id[1:]  # makes name and zip code unique to one user
    else:
        id = ids.new("user", f"{first}_{last}_".lower())
        email, zip = f"{id.replace('_', '.')}@example.com", ids.new("zip")
    payments: dict[str, Record] = {}
    for kind in [kind for kind in KINDS if rng.random() < 0.6] or [CARD]:
        payment: Record = {"kind": kind}
        if kind == GIFT_CARD:
            payment["balance"] = rng.choice((rng.randrange(500, 5000), rng.randrange(5000, 90000)))
        if size == "small":  # at most one of a kind, so that the kind is enough
            payments[kind.split()[0]] = payment
        else:
            payments[f"{kind.replace(' ', '_')}_{rng.randrange(10**6, 10**7)}"] = payment
    user = {
        "user_id": id,
        "first": first,
        "last": last,
        "email": email,
        "address": make_address(rng, zip),
        "payments": payments,
        "orders": [],
    }
    return id, user


def make_address(rng: random.Random, zip: str) -> Record:
    """Return a street, city, state and zip code."""
    city, state = rng.choice(CITIES)
    street = f"{rng.randrange(1, 1000)} {rng.choice(STREETS)} Street"
    return {"street": street, "city": city, "state": state, "zip": zip}


def _order(
    rng: random.Random, ids: _Ids, user: Record, products: dict[str, Record], scale: Scale
) -> tuple[str, Record]:
    items = []
    for product_id in rng.sample(sorted(products), rng.choice(scale.items)):
        product = products[product_id]
        item_id = rng.choice(sorted(product["variants"]))
        variant = product["variants"][item_id]
        items.append(
            {
                "item_id": item_id,
                "product_id": product_id,
                "name": product["name"],
                "options": dict(variant["options"]),
                "price": variant["price"],
            }
        )
    id = ids.new_pair("W", "-") if scale.pairs else ids.new("order", "W")
    paid = {
        "payment_id": rng.choice(list(user["payments"])),
        "amount": sum(item["price"] for item in items),
    }
    order = {
        "order_id": id,
        "user_id": user["user_id"],
        "status": rng.choices(list(STATUSES), list(STATUSES.values()))[0],
        "address": dict(user["address"]),
        "items": items,
        "paid": [paid],
    }
    return id, order
