"""Mistakes in a config and their places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from art_cli.errors import UsageError
from art_cli.system.files import read_text

KeyPath = tuple[str | int, ...]
SHOWN = 100  # characters shown of a line with a mistake


def dotted(path: KeyPath) -> str:
    """Return the path as in YAML overrides: `train.steps`."""
    return ".".join(map(str, path))


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file or an override; lines and columns count from 1."""

    source: str  # a path as the user gave it, or "override 'train.steps=3'"
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.source, self.line, self.column) if part)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake of the user."""

    place: Place
    path: KeyPath  # () for the file as a whole
    message: str
    is_secret: bool = False

    def __str__(self) -> str:
        path = f"{dotted(self.path)}: " if self.path else ""
        return f"{self.place}: {path}{self.message}"

    def pointed(self) -> str:
        """Return the problem, followed by the line of the file with a mark at the column."""
        place = self.place
        if self.is_secret or not place.line or not place.column:
            return str(self)
        try:
            line = read_text(Path(place.source)).splitlines()[place.line - 1]
        except (OSError, ValueError, IndexError, UsageError):  # the file has changed or is gone
            return str(self)
        begin = max(0, place.column - 1 - SHOWN // 2)
        shown = line[begin : begin + SHOWN].replace("\t", " ")
        number = str(place.line)
        mark = " " * (place.column - 1 - begin) + "^"
        return f"{self}\n  {number} | {shown}\n  {' ' * len(number)} | {mark}"
