"""A row of the KV cache, and the episodes whose tokens it holds.

Siblings are in one row as long as they have read and said the same: what comes next is computed
once, and each draws its own token from it. Whoever goes on differently gets a copy of the row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from art_cli.engines.embedded.turn import TurnSoFar


@dataclass(eq=False, slots=True)
class Row:
    """The tokens of a row, and its occupants: all of them have read and said just these."""

    cached: list[int] = field(default_factory=list)  # ids whose keys and values are in the row
    shares: bool = False  # it begins with the prefix that is kept
    index: int = -1  # in the cache; -1: it has no place yet
    occupants: list[Occupant] = field(default_factory=list)

    @property
    def following(self) -> list[int]:
        """The next tokens, where all occupants go on alike."""
        return self.occupants[0].following

    def enter(self, occupant: Occupant) -> None:
        """Take in one who has read and said what is here."""
        occupant.row = self
        self.occupants.append(occupant)

    def go_on(self) -> None:
        """Note that what follows has been read."""
        self.cached += self.following
        for occupant in self.occupants:
            occupant.pending = []


@dataclass(eq=False, slots=True)
class Occupant:
    """One episode: where its tokens are, and what its turn has come to."""

    order: int  # of opening: batches are laid out by it, not by who came first
    uniforms: random.Random
    awaited: bool
    row: Row | None = None
    pending: list[int] = field(default_factory=list)  # ids to prefill
    is_asking: bool = False  # for a turn
    turn: TurnSoFar = field(default_factory=lambda: TurnSoFar(room=0))

    @property
    def cached(self) -> list[int]:
        """The ids that need not be read again."""
        return self.row.cached if self.row else []

    @property
    def following(self) -> list[int]:
        """The ids to be read next: of the prompt, or the last that was sampled."""
        return self.pending or self.turn.sampled[-1:]

    @property
    def is_idle(self) -> bool:
        """True if its row may be given to another: it may never ask again."""
        return not self.awaited and not self.is_asking

    def end_turn(self) -> TurnSoFar:
        """Return the turn that is over."""
        self.is_asking = False
        return self.turn

    def leave(self) -> None:
        """Leave the row to whoever else is in it."""
        if self.row:
            self.row.occupants.remove(self)
            self.row = None

    def lose_row(self) -> None:
        """Give up the row: what was in it has to be read again."""
        self.pending = [*self.cached, *self.pending]
        self.leave()
