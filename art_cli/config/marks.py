"""Marks for settings that depend on others. `rules.py` refuses a setting without effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from art_cli.config.plugins import FORM, is_plugin


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Marks a setting that has an effect only where another key has one of these values.

    FORM among them stands for every plugin: it is made of its section, and may read all of it.
    """

    key: str
    values: tuple[str, ...]
    instead: str = "remove it"

    @property
    def message(self) -> str:
        """The text of the mistake; {1} is the value of `key`."""
        return f"has no effect with {self.key}={{1}}; {self.instead}"

    def allows(self, other: Any) -> bool:
        """Return whether the setting has an effect where the other key has this value."""
        return other in self.values or (FORM in self.values and is_plugin(other))


@dataclass(frozen=True, slots=True)
class NotWith:
    """Marks a setting that has an effect only if another key is null."""

    key: str
    what: str  # the other key stands for

    @property
    def message(self) -> str:
        """The text of the mistake."""
        return f"has no effect with {self.key}, {self.what}; remove it"

    def allows(self, other: Any) -> bool:
        """Return whether the setting has an effect where the other key has this value."""
        return other is None
