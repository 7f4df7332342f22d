"""Find scenarios that differ only in case, punctuation, word order or a few additional words.

A word that differs on both sides, or a number, makes another task: "before 1940", "before 1950".
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from art_cli.types import Scenario

WORD = re.compile(r"\w+")
ADDED = 0.1  # maximum share of additional words on one side
COMMON = 50  # scenarios; a word in more of them is not distinctive
LONGEST = 20_000  # characters of a text that are compared
TEXT = 5  # words; a shorter text is compared as one value


class Known:
    """Index of scenarios by their data."""

    def __init__(self, scenarios: Iterable[Scenario]) -> None:
        self._same: dict[str, Scenario] = {}
        self._words: list[tuple[frozenset[str], Scenario]] = []
        self._with: dict[str, list[int]] = defaultdict(list)
        for scenario in scenarios:
            words = words_of(scenario)
            self._same.setdefault(_key(words), scenario)
            for word in set(words):
                self._with[word].append(len(self._words))
            self._words.append((frozenset(words), scenario))

    def find(self, scenario: Scenario) -> Scenario | None:
        """Return an indexed scenario with the same or nearly the same data, or None."""
        words = words_of(scenario)
        if found := self._same.get(_key(words)):
            return found
        mine = frozenset(words)
        more = int(ADDED * len(mine))
        if not more:
            return None
        rare = sorted(mine, key=lambda w: (len(self._with.get(w, ())), w))[: more + 1]
        near = {i for w in rare if len(at := self._with.get(w, ())) <= COMMON for i in at}
        for i in sorted(near):
            theirs, other = self._words[i]
            added = mine ^ theirs
            if len(added) > more or not (mine <= theirs or theirs <= mine):
                continue
            if not any(map(_has_number, added)):
                return other
        return None


def words_of(scenario: Scenario) -> list[str]:
    """Return the words and short values in a scenario's data, case-folded.

    Each is followed by the key that it was found under.
    """
    out: list[str] = []
    for key, text in _leaves(scenario.data):
        words = WORD.findall(unicodedata.normalize("NFKC", text[:LONGEST]).casefold())
        words = words if len(words) >= TEXT else [" ".join(words)]
        out += [f"{word} {key}" for word in words]
    return out


def _key(words: list[str]) -> str:
    return "\n".join(sorted(words))


def _has_number(word: str) -> bool:
    return any(map(str.isdigit, word.rpartition(" ")[0]))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(each, f"{key}.{name}")
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, key)
    else:
        yield key, str(value)
