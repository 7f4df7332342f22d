"""Incremental reading of a list that grows at its end: items read before are not read again.

readings = Continued(list.copy, lambda state, place, item: state.append(item.lower()))
readings.read([a, b], [])  # reads both
readings.read([a, b, c], [])  # reads c
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, Generic, TypeVar

S = TypeVar("S")

KNOWN = 4  # conversations of one caller, for sub-agents that take turns


class Continued(Generic[S]):
    """Reads lists item by item into a state. If a list extends an earlier one, reads only the rest.

    A list extends another if it begins with the same objects. Equality is not enough: 1 == True.
    """

    def __init__(self, copied: Callable[[S], S], add: Callable[[S, int, Any], None]) -> None:
        """`add(state, place, item)` adds the item at index `place` of the list to a state."""
        self._copied = copied
        self._add = add
        self._known: tuple[tuple[list[Any], S], ...] = ()

    def read(self, items: list[Any], empty: S) -> S:
        """Return the state after all items. The caller must not change it."""
        found = max(
            (k for k in self._known if _begins(items, k[0])), key=lambda k: len(k[0]), default=None
        )
        state = self._copied(found[1] if found else empty)
        for place in range(len(found[0]) if found else 0, len(items)):
            self._add(state, place, items[place])
        others = tuple(known for known in self._known if known is not found)
        self._known = ((list(items), state), *others[: KNOWN - 1])
        return state


def _begins(items: list[Any], known: list[Any]) -> bool:
    return len(known) <= len(items) and all(map(is_, known, items))
