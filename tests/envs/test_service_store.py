"""The shared database of service tasks: private copies, and when two states are the same."""

import itertools

import pytest

from art_envs.service.store import Store, same

BASE = {"orders": {"W1": {"status": "pending", "items": [{"id": "a"}, {"id": "b"}]}}}


def test_a_write_is_private() -> None:
    one, other = Store(BASE), Store(BASE)
    one.edit("orders", "W1")["items"].append({"id": "c"})
    one.add("orders", "W2", {"status": "new"})
    assert len(one.peek("orders", "W1")["items"]) == 3
    assert [id for id, _ in one.rows("orders")] == ["W1", "W2"]
    assert [id for id, _ in other.rows("orders")] == ["W1"]
    assert len(other.peek("orders", "W1")["items"]) == len(BASE["orders"]["W1"]["items"]) == 2


def test_changes_are_what_differs() -> None:
    store = Store(BASE)
    order = store.edit("orders", "W1")
    assert store.changes() == {}
    order["status"] = "cancelled"
    assert store.changes() == {("orders", "W1"): order}


def test_what_was_seen_is_what_was_looked_up() -> None:
    store = Store(BASE)
    store.peek("orders", "W1")
    list(store.rows("orders"))
    assert store.get("orders", "W9") is None
    assert store.seen == set()
    store.get("orders", "W1")
    assert store.seen == {("orders", "W1")}


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        (
            {"items": [{"id": "a", "n": 1}, {"id": "b"}]},
            {"items": [{"id": "b"}, {"n": 1, "id": "a"}]},
            True,
        ),
        ({"items": [1, 1, 2]}, {"items": [1, 2, 2]}, False),
        ({"items": [{"ids": [1, 2]}]}, {"items": [{"ids": [2, 1]}]}, True),
        ({"id": 1}, {"id": 1, "extra": None}, False),
        ({"id": "1"}, {"id": 1}, False),
        ({"items": []}, {"items": {}}, False),
    ],
)
def test_same(a: dict, b: dict, is_same: bool) -> None:
    assert same(a, b) is is_same
    assert same(b, a) is is_same


def test_a_float_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="keep cents"):
        same({"price": 0.1}, {"price": 0.1})


def test_views_are_the_same_whatever_the_way() -> None:
    stores = [Store(BASE) for _ in range(3)]
    for store, items in zip(stores, ("ab", "ba", "aa"), strict=True):
        store.edit("orders", "W1")["items"] = [{"id": i} for i in items]
    pairs = [a.is_same(b) for a, b in itertools.combinations(stores, 2)]
    assert pairs == [True, False, False]
    assert stores[0].is_same(Store(BASE))
