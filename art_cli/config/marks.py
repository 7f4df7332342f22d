"""Marks on settings that have an effect only together with others; `rules.py` refuses them else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Marks a setting that has an effect only where another key has one of these values."""

    key: str
    values: tuple[str, ...]
    instead: str = "remove it"

    def has_effect(self, other: Any) -> bool:
        """Whether the setting has one beside this value of `key`."""
        return other in self.values

    @property
    def message(self) -> str:
        """What is wrong; {1} is the value of `key`."""
        return f"has no effect with {self.key}={{1}}; {self.instead}"


@dataclass(frozen=True, slots=True)
class NotWith:
    """Marks a setting that has an effect only where another key is null."""

    key: str
    what: str  # the other key stands for

    def has_effect(self, other: Any) -> bool:
        """Whether the setting has one beside this value of `key`."""
        return other is None

    @property
    def message(self) -> str:
        """What is wrong."""
        return f"has no effect with {self.key}, {self.what}; remove it"
