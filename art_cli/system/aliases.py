"""Aliases for names in places that allow fewer characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ANY_SIGN = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The names that are allowed in some place."""

    allows: Callable[[str], object]
    other: re.Pattern[str]  # characters that "_" replaces in an alias
    longest: int = 64
    prefix: str = "tool"  # prefix of an alias that would otherwise be empty or not allowed

    def fitted(self, name: str) -> str:
        """Return an allowed name similar to this one. Accents are dropped."""
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        found = self.other.sub("_", plain).strip("_")[: self.longest] or self.prefix
        return found if self.allows(found) else f"{self.prefix}_{found}"[: self.longest]


# Tool names that the APIs of OpenAI and Anthropic allow.
API_NAMES = Alphabet(re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch, ANY_SIGN)


def aliases(names: Sequence[str], alphabet: Alphabet = API_NAMES) -> list[str]:
    """Return a distinct allowed name for each name. Allowed names stay unchanged.

    Names that become equal are numbered in order: a.b, a/b, a_b -> a_b_2, a_b_3, a_b.
    """
    taken = {name for name in names if alphabet.allows(name)}
    kept: set[str] = set()
    numbers: dict[str, int] = {}  # last number used, by name without number
    found: list[str] = []
    for name in names:
        if alphabet.allows(name) and name not in kept:
            kept.add(name)
            found.append(name)
            continue
        begin = alphabet.fitted(name)
        number, alias = numbers.get(begin, 1), begin
        while alias in taken:
            number += 1
            end = f"_{number}"
            alias = begin[: alphabet.longest - len(end)] + end
        numbers[begin] = number
        taken.add(alias)
        kept.add(alias)
        found.append(alias)
    return found
