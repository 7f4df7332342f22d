"""Marks for settings that depend on others. `rules.py` refuses a setting without effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Marks a setting that has an effect only if another key has one of these values."""

    key: str
    values: tuple[str, ...]
    instead: str = "remove it"

    @property
    def message(self) -> str:
        """The text of the mistake; {1} is the value of `key`."""
        return f"has no effect with {self.key}={{1}}; {self.instead}"


@dataclass(frozen=True, slots=True)
class NotWith:
    """Marks a setting that has an effect only if another key is null."""

    key: str
    what: str  # describes the value of the other key
    values: ClassVar = (None,)

    @property
    def message(self) -> str:
        """The text of the mistake."""
        return f"has no effect with {self.key}, {self.what}; remove it"
