"""How the long things tell that they go on, so that no wait is silent."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Told what is going on."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """`done` of `total`, where that is known."""
        ...


def silent(text: str, done: int | None = None, total: int | None = None) -> None:
    """A Report that nobody hears."""
