"""A row of the KV cache, and the episodes whose tokens it holds.

Siblings share a row as long as their tokens are equal. The next distribution is computed once, and
each sibling draws its own token. A sibling that diverges gets a copy of the row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from art_cli.engines.embedded.turn import TurnSoFar


@dataclass(eq=False, slots=True)
class Row:
    """The tokens of a row, and its occupants, which all have exactly these tokens."""

    cached: list[int] = field(default_factory=list)  # ids whose keys and values are in the row
    shares: bool = False  # it starts with the shared prefix
    index: int = -1  # in the cache; -1: not placed yet
    occupants: list[Occupant] = field(default_factory=list)

    @property
    def following(self) -> list[int]:
        """The next tokens, if all occupants continue equally."""
        return self.occupants[0].following

    def enter(self, occupant: Occupant) -> None:
        """Add an occupant with the same tokens."""
        occupant.row = self
        self.occupants.append(occupant)

    def go_on(self) -> None:
        """Mark the following tokens as cached."""
        self.cached += self.following
        for occupant in self.occupants:
            occupant.pending = []


@dataclass(eq=False, slots=True)
class Occupant:
    """One episode: its row, its pending tokens and its turn."""

    order: int  # order of opening, which determines batches instead of arrival times
    uniforms: random.Random
    awaited: bool
    row: Row | None = None
    pending: list[int] = field(default_factory=list)  # ids to prefill
    is_asking: bool = False  # a turn is requested or in progress
    turn: TurnSoFar = field(default_factory=lambda: TurnSoFar(room=0))

    @property
    def cached(self) -> list[int]:
        """The ids that need not be read again."""
        return self.row.cached if self.row else []

    @property
    def following(self) -> list[int]:
        """The next ids to read: pending prompt tokens, or the last sampled token."""
        return self.pending or self.turn.sampled[-1:]

    @property
    def is_idle(self) -> bool:
        """True if its row may be given to another occupant, because it may never ask again."""
        return not self.awaited and not self.is_asking

    def end_turn(self) -> TurnSoFar:
        """Mark the turn as over, and return it."""
        self.is_asking = False
        return self.turn

    def leave(self) -> None:
        """Leave the row to its other occupants."""
        if self.row:
            self.row.occupants.remove(self)
            self.row = None

    def lose_row(self) -> None:
        """Give up the row. Its tokens must be read again."""
        self.pending = [*self.cached, *self.pending]
        self.leave()
