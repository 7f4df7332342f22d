"""The stored responses of a caller, which its later requests may refer to."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from art_cli.rollout.gateway.asked import RequestError

MAX_STORED = 1024  # responses
MAX_BYTES = 2**24  # of requests and answers; the newest is stored whatever its size


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the whole history up to and including its output items."""

    body: dict[str, Any]
    items: list[dict[str, Any]]
    size: int  # bytes


class ResponseStore:
    """The newest responses of one caller."""

    def __init__(self) -> None:
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, dict[str, Any]] = {}  # of answers, by their ids
        self._size = 0

    def add(self, response: StoredResponse) -> None:
        """Store a response. Drops the oldest ones beyond `MAX_STORED` or `MAX_BYTES`."""
        self._stored[response.body["id"]] = response
        self._items |= {item["id"]: item for item in response.body["output"]}
        self._size += response.size
        while len(self._stored) > MAX_STORED or (self._size > MAX_BYTES and len(self._stored) > 1):
            self.drop(next(iter(self._stored)))

    def get(self, id: str) -> StoredResponse:
        """Return a stored response. Raises RequestError if it is unknown or was dropped."""
        if id not in self._stored:
            raise RequestError(
                404,
                f"Previous response with id {id!r:.100} not found; send the whole input",
                "previous_response_not_found",
            )
        return self._stored[id]

    def drop(self, id: str) -> None:
        """Remove a stored response. Raises RequestError if it is unknown."""
        response = self.get(id)
        del self._stored[id]
        for item in response.body["output"]:
            del self._items[item["id"]]
        self._size -= response.size

    def resolved(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace references to items with the items. Raises RequestError."""
        return [self._referred(item) for item in items]

    def _referred(self, item: dict[str, Any]) -> dict[str, Any]:
        is_reference = item.get("type") == "item_reference" or set(item) == {"id"}
        if not is_reference:
            return item
        id = str(item.get("id"))
        if id not in self._items:
            raise RequestError(404, f"Item with id {id!r:.100} not found; send the item itself")
        return self._items[id]
