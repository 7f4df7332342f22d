"""The shared database of service tasks: private copies, and when two states are the same."""

import itertools

import pytest

from art_envs.service.store import Canon, Store

BASE = {"orders": {"W1": {"status": "pending", "items": [{"id": "a"}, {"id": "b"}], "note": ""}}}
CANON = Canon(ignored=frozenset({"note"}), ordered=frozenset({"route"}))


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
    ("a", "b", "same"),
    [
        (
            {"items": [{"id": "a", "n": 1}, {"id": "b"}]},
            {"items": [{"id": "b"}, {"n": 1, "id": "a"}]},
            True,
        ),
        ({"items": [1, 1, 2]}, {"items": [1, 2, 2]}, False),
        ({"route": [1, 2]}, {"route": [2, 1]}, False),
        ({"items": [{"route": [1, 2]}]}, {"items": [{"route": [2, 1]}]}, False),
        ({"note": "x", "id": 1}, {"note": "y", "id": 1}, True),
        ({"items": [{"id": "a", "note": "y"}]}, {"items": [{"id": "a", "note": "x"}]}, True),
        ({"id": 1}, {"id": 1, "extra": None}, False),
        ({"id": "1"}, {"id": 1}, False),
        ({"items": []}, {"items": {}}, False),
    ],
)
def test_same(a: dict, b: dict, same: bool) -> None:
    assert CANON.same(a, b) is same
    assert CANON.same(b, a) is same


def test_a_float_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="keep cents"):
        CANON.same({"price": 0.1}, {"price": 0.1})


def test_views_are_the_same_whatever_the_way() -> None:
    stores = [Store(BASE) for _ in range(3)]
    for store, items in zip(stores, ("ab", "ba", "aa"), strict=True):
        store.edit("orders", "W1")["items"] = [{"id": i} for i in items]
        store.edit("orders", "W1")["note"] = items
    same = [a.is_same(b, CANON) for a, b in itertools.combinations(stores, 2)]
    assert same == [True, False, False]
    assert stores[0].is_same(Store(BASE), CANON)
