"""Rules about combinations of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rule:
    """Refuses the setting `path` if `broken` is true for its value and those of `others`."""

    path: str
    others: tuple[str, ...]
    broken: Callable[..., bool]
    message: str  # format string for the same values


def clash(unwanted: dict[str, Any], message: str) -> Rule:
    """Return a rule against a combination of values. A function tests whether a value matches."""

    def broken(*values: Any) -> bool:
        pairs = zip(unwanted.values(), values, strict=True)
        return all(bad(value) if callable(bad) else value == bad for bad, value in pairs)

    path, *others = unwanted
    return Rule(path, tuple(others), broken, message)


def is_set(value: Any) -> bool:
    """Return whether a value is not null."""
    return value is not None


def is_positive(value: float) -> bool:
    """Return whether a number is more than 0."""
    return value > 0
