"""How the long things tell that they go on, so that no wait is silent."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Told what is going on."""

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """`done` of `total`, where that is known."""
        ...


def silent(text: str, done: int | None = None, total: int | None = None) -> None:
    """Report to nobody."""


_listener: Report = silent


def listen(report: Report) -> None:
    """Let `report` hear what is told where no Report is handed to: in an env, say."""
    global _listener
    _listener = report


def tell(text: str, done: int | None = None, total: int | None = None) -> None:
    """Tell whoever listens what is going on; an env calls it where its scenarios take long."""
    _listener(text, done, total)
