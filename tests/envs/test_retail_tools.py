"""The shop's tools: what they do to the database, and what the policy refuses."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from art_cli.envs.base import ToolError
from art_cli.types import Scenario
from art_envs.retail.desk import RetailDesk
from art_envs.service.gates import finished

ADDRESS = {"street": "1 Oak Street", "city": "Rome", "state": "NY", "zip": "13440"}
TABLES: dict[str, Any] = {
    "users": {
        "mia": {
            "user_id": "mia",
            "first": "Mia",
            "last": "Kim",
            "email": "mia@x.com",
            "address": ADDRESS,
            "payments": {
                "card": {"kind": "credit card"},
                "paypal": {"kind": "paypal"},
                "gift": {"kind": "gift card", "balance": 1500},
            },
            "orders": ["W1"],
        }
    },
    "products": {
        "p1": {
            "product_id": "p1",
            "name": "mug",
            "variants": {
                "red": {"options": {"color": "red"}, "price": 1000, "available": True},
                "blue": {"options": {"color": "blue"}, "price": 1200, "available": True},
                "gold": {"options": {"color": "gold"}, "price": 9000, "available": True},
                "gone": {"options": {"color": "none"}, "price": 1000, "available": False},
            },
        },
        "p2": {
            "product_id": "p2",
            "name": "lamp",
            "variants": {"lamp": {"options": {}, "price": 3000, "available": True}},
        },
    },
    "orders": {
        "W1": {
            "order_id": "W1",
            "user_id": "mia",
            "status": "pending",
            "address": ADDRESS,
            "items": [
                {
                    "item_id": "red",
                    "product_id": "p1",
                    "name": "mug",
                    "options": {"color": "red"},
                    "price": 1000,
                }
            ],
            "paid": [{"payment_id": "card", "amount": 1000}],
        }
    },
}
SWAP = {"order_id": "W1", "item_ids": ["red"], "new_item_ids": ["blue"], "payment_id": "gift"}


class Shop(RetailDesk):
    """A shop with one order."""

    tables: Any = TABLES

    @classmethod
    def database(cls, cfg: Any) -> Any:
        return cls.tables


def shop(status: str = "pending") -> Shop:
    """An episode in which the order has this status."""
    desk = Shop(
        Scenario(id="x", split="train", seed=0, data={"goal": {"user_id": "mia"}}), Shop.Config()
    )
    desk.store.edit("orders", "W1")["status"] = status
    return desk


def use(desk: Shop, name: str, **arguments: Any) -> Any:
    """What a tool says."""
    return finished(desk.act({"name": name, "arguments": arguments}))


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("cancel_order", {"order_id": "W1", "reason": "no longer needed"}, "pending"),
        ("modify_order_address", {"order_id": "W1", **ADDRESS}, "pending"),
        ("modify_order_payment", {"order_id": "W1", "payment_id": "gift"}, "pending"),
        ("modify_order_items", SWAP, "pending"),
        ("exchange_items", SWAP, "delivered"),
        (
            "return_items",
            {"order_id": "W1", "item_ids": ["red"], "payment_id": "gift"},
            "delivered",
        ),
    ],
)
def test_a_write_needs_its_status(name: str, arguments: dict[str, Any], status: str) -> None:
    for other in ("pending", "processed", "delivered", "cancelled", "return requested"):
        desk = shop(other)
        if other == status:
            assert json.loads(use(desk, name, **arguments)) == {"ok": True}
        else:
            with pytest.raises(ToolError, match=f"the order is {other}; only"):
                use(desk, name, **arguments)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"new_item_ids": ["gone"]}, "not available"),
        ({"new_item_ids": ["red"]}, "same item"),
        ({"new_item_ids": ["lamp"]}, "not of the same product"),
        ({"new_item_ids": ["gold"]}, "does not cover"),
        ({"new_item_ids": ["blue", "gold"]}, "one new item for each"),
        ({"item_ids": ["lamp"]}, "has no item"),
        ({"item_ids": [], "new_item_ids": []}, "at least one"),
        ({"payment_id": "visa"}, "no payment method"),
        ({"order_id": "#W1"}, "without #"),
        ({"items": ["red"]}, "invalid arguments"),
    ],
)
def test_what_is_wrong_with_a_swap_is_said(changed: dict[str, Any], why: str) -> None:
    desk = shop()
    with pytest.raises(ToolError, match=why):
        use(desk, "modify_order_items", **(SWAP | changed))
    assert desk.store.changes() == {}


def test_items_are_modified_once_and_then_the_order_stays() -> None:
    desk = shop()
    use(desk, "modify_order_items", **SWAP)
    order = desk.store.peek("orders", "W1")
    assert order["items"][0] == TABLES["orders"]["W1"]["items"][0] | {
        "item_id": "blue",
        "options": {"color": "blue"},
        "price": 1200,
    }
    assert desk.store.peek("users", "mia")["payments"]["gift"]["balance"] == 1300
    for name, arguments in {
        "modify_order_items": SWAP,
        "cancel_order": {"order_id": "W1", "reason": "no longer needed"},
    }.items():
        with pytest.raises(ToolError, match=r"items modified"):
            use(desk, name, **arguments)


def test_a_refund_goes_back_or_to_a_gift_card() -> None:
    with pytest.raises(ToolError, match="original payment method or to a gift card"):
        use(shop("delivered"), "return_items", order_id="W1", item_ids=["red"], payment_id="paypal")
    for allowed in ("card", "gift"):
        desk = shop("delivered")
        use(desk, "return_items", order_id="W1", item_ids=["red"], payment_id=allowed)
        assert desk.store.peek("orders", "W1")["status"] == "return requested"


def test_paying_otherwise_and_cancelling_move_the_money() -> None:
    desk = shop()
    use(desk, "modify_order_payment", order_id="W1", payment_id="gift")
    assert desk.store.peek("users", "mia")["payments"]["gift"]["balance"] == 500
    with pytest.raises(ToolError, match="already paid"):
        use(desk, "modify_order_payment", order_id="W1", payment_id="gift")
    use(desk, "cancel_order", order_id="W1", reason="ordered by mistake")
    assert desk.store.peek("users", "mia")["payments"]["gift"]["balance"] == 1500


def test_reading() -> None:
    desk = shop()
    assert use(desk, "find_user_by_email", email=" Mia@x.com") == "mia"
    assert use(desk, "find_user_by_name_zip", first="mia", last="KIM", zip="13440") == "mia"
    assert json.loads(use(desk, "get_order", order_id="W1"))["items"][0]["price"] == "10.00"
    assert json.loads(use(desk, "get_user", user_id="mia"))["orders"] == ["W1"]
    assert json.loads(use(desk, "get_item", item_id="gold"))["price"] == "90.00"
    assert json.loads(use(desk, "list_product_types")) == {"mug": "p1", "lamp": "p2"}
    assert "gone" in use(desk, "get_product", product_id="p1")


def test_every_enumerated_write_is_legal_and_the_base_stays_as_it_was() -> None:
    before = copy.deepcopy(TABLES)
    for status in ("pending", "delivered", "processed"):
        for write in shop(status).legal_writes():
            use(shop(status), write["name"], **write["arguments"])
    assert before == TABLES
