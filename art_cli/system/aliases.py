"""Names for where fewer signs are allowed: a name that does not fit gets an alias that does."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ANY_SIGN = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Alphabet:
    """The names that are allowed somewhere."""

    allows: Callable[[str], object]
    other: re.Pattern[str]  # signs that an alias has "_" instead of
    longest: int = 64
    prefix: str = "tool"  # of an alias that would otherwise be empty, or not allowed

    def fitted(self, name: str) -> str:
        """Return the allowed name that is most like this one. Accents are dropped."""
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
        found = self.other.sub("_", plain).strip("_")[: self.longest] or self.prefix
        return found if self.allows(found) else f"{self.prefix}_{found}"[: self.longest]


# What the APIs of OpenAI and Anthropic take as the name of a tool.
API_NAMES = Alphabet(re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch, ANY_SIGN)


def aliases(names: Sequence[str], alphabet: Alphabet = API_NAMES) -> list[str]:
    """Return an allowed name for each name, no two alike. A name that is allowed stays.

    Names that become equal are numbered in their order: a.b, a/b, a_b -> a_b_2, a_b_3, a_b.
    """
    taken = {name for name in names if alphabet.allows(name)}
    kept: set[str] = set()
    numbers: dict[str, int] = {}  # the last one, by what it was put behind
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
