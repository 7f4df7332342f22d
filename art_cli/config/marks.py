"""Marks on settings that need others to have an effect; `rules.py` refuses them without these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Marks a setting that has an effect only where another key has one of these values."""

    key: str
    values: tuple[str, ...]
    instead: str = "remove it"

    @property
    def message(self) -> str:
        """Return what is wrong; {1} is the value of `key`."""
        return f"has no effect with {self.key}={{1}}; {self.instead}"


@dataclass(frozen=True, slots=True)
class NotWith:
    """Marks a setting that has an effect only where another key is null."""

    key: str
    what: str  # the other key stands for
    values: ClassVar = (None,)

    @property
    def message(self) -> str:
        """Return what is wrong."""
        return f"has no effect with {self.key}, {self.what}; remove it"
