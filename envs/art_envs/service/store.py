"""One episode's view of a database that all episodes share.

    base = {"orders": {"W1": {"status": "pending", "items": [...]}}}
    store = Store(base)
    store.edit("orders", "W1")["status"] = "cancelled"    # a private copy; `base` is as it was
    store.changes()                                       # {("orders", "W1"): {...}}

Amounts of money are integers (cents): a float would compare unequal to itself after arithmetic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]
Tables = Mapping[str, Mapping[str, Record]]  # table -> id -> record; shared, so never written to
Key = tuple[str, str]  # (table, id)


@dataclass(frozen=True, kw_only=True)
class Canon:
    """When two records are the same. Every list is a set, unless its field is in `ordered`."""

    ignored: frozenset[str] = frozenset()  # fields of free text and logs
    ordered: frozenset[str] = frozenset()  # fields whose list has an order that matters

    def form(self, value: Any) -> str:
        """The same text for values that mean the same."""
        return _text(self._plain(value))

    def _plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return {k: self._plain(v, k) for k, v in value.items() if k not in self.ignored}
        if isinstance(value, list | tuple):
            items = [self._plain(item) for item in value]
            return items if field in self.ordered else sorted(items, key=_text)
        assert not isinstance(value, float), f"{field}: {value} is a float; keep cents"
        return value


class Store:
    """Copy-on-write: an episode's memory grows by what it writes."""

    def __init__(self, base: Tables) -> None:
        self._base = base
        self._own: dict[Key, Record] = {}
        self.seen: set[Key] = set()  # what was looked up by id: the evidence that was read

    def get(self, table: str, id: str) -> Record | None:
        """A record to read, not to write to. None where there is no such id."""
        record = self.peek(table, id)
        if record is not None:
            self.seen.add((table, id))
        return record

    def peek(self, table: str, id: str) -> Record | None:
        """The same for a tool that only checks before it writes: nothing of it is shown."""
        return self._own.get((table, id)) or self._base[table].get(id)

    def edit(self, table: str, id: str) -> Record:
        """A record to write to. Raises KeyError where there is no such id."""
        key = (table, id)
        if key not in self._own:
            self._own[key] = _copy(self._base[table][id])
        return self._own[key]

    def add(self, table: str, id: str, record: Record) -> None:
        """A new record; the id must be free."""
        assert (table, id) not in self._own and id not in self._base[table]
        self._own[table, id] = record

    def rows(self, table: str) -> Iterator[tuple[str, Record]]:
        """All records of a table, those that were added last. Looking through is not reading."""
        base = self._base[table]
        for id, record in base.items():
            yield id, self._own.get((table, id), record)
        for (owner, id), record in self._own.items():
            if owner == table and id not in base:
                yield id, record

    def changes(self, canon: Canon) -> dict[Key, str]:
        """The canonical form of each record that is not what it was."""
        forms = {key: canon.form(record) for key, record in self._own.items()}
        was = {key: self._base[key[0]].get(key[1]) for key in forms}
        return {
            k: form for k, form in forms.items() if was[k] is None or form != canon.form(was[k])
        }


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return [_copy(v) for v in value] if isinstance(value, list) else value
