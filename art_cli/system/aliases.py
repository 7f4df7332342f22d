"""Names for where fewer signs are allowed: a name that does not fit gets an alias that does."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ANY_SIGN = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Which names are allowed somewhere."""

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

    What others are like is told apart by a number: a.b, a/b, a_b -> a_b_2, a_b_3, a_b.
    """
    own = {name for name in names if alphabet.allows(name)}
    found: dict[str, None] = {}  # in their order
    for name in names:
        stays = name in own and name not in found
        taken = own | found.keys()
        alias = name if stays else _free(alphabet.fitted(name), taken, alphabet.longest)
        found[alias] = None
    return list(found)


def _free(name: str, taken: set[str], longest: int) -> str:
    number, found = 1, name
    while found in taken:
        number += 1
        end = f"_{number}"
        found = name[: longest - len(end)] + end
    return found
