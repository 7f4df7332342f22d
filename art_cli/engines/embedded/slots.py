"""Allocation of the rows of a KV cache, which grows and is compacted."""

from __future__ import annotations

from collections.abc import Callable

from art_cli.engines.embedded.row import Occupant, Row
from art_cli.models.forward.memory import Memory

FREE_ROWS = 0.3  # maximum share of free rows before the cache is compacted
FREE_ROWS_ON_GPU = 0.5


class Slots:
    """A cache, and the occupants of its rows. Occupants with equal tokens share a row."""

    def __init__(self, make: Callable[[int, int], Memory], on_gpu: bool) -> None:
        """`make` returns a cache for a number of rows and tokens per row."""
        self.cache: Memory | None = None
        self.rows: list[Row | None] = []
        self._make = make
        # Recorded GPU steps are tied to the cache's size, so there each occupant has a row
        # reserved.
        self._on_gpu = on_gpu
        self._widest = (0, 0)  # size of the widest cache so far: (rows, length)
        self._was_freed = False  # a row was freed since the last `pack`

    @property
    def taken(self) -> list[Row]:
        """The rows in use."""
        return [row for row in self.rows if row]

    @property
    def occupants(self) -> list[Occupant]:
        """All occupants of rows."""
        return [s for row in self.rows if row for s in row.occupants]

    @property
    def span(self) -> int:
        """Number of rows, counted from the first, that a step of all rows in use must run."""
        if self._on_gpu:
            return len(self.rows)
        return 1 + max((row.index for row in self.rows if row), default=-1)

    def place(self, new: list[Row], max_tokens: int) -> None:
        """Assign cache rows to new rows, with room for `max_tokens` after their next tokens."""
        most = len(self.occupants) + sum(len(row.occupants) for row in new)
        needed = most if self._on_gpu else len(self.taken) + len(new)
        if self.cache is None:
            num = max(needed, min(most, self._widest[0]))
            longest = max(len(row.following) for row in new) + max_tokens
            # The length of the previous batch avoids growing again.
            before = self._widest[1] if num <= self._widest[0] else 0
            self.cache = self._make(num, max(longest, before))
            self.rows = [None] * num
        elif (missing := needed - len(self.rows)) > 0:
            more = max(missing, min(len(self.rows) // 2, most - len(self.rows)))
            self.cache.add_rows(more)
            self.rows += [None] * more
        free = iter([i for i, row in enumerate(self.rows) if row is None])
        for row in new:
            row.index = next(free)
            self.rows[row.index] = row

    def copy(self, parted: list[tuple[Row, list[Occupant]]]) -> list[Row]:
        """Move these occupants of each row into a copy of it. Return the copies."""
        new: list[Row] = []
        for row, group in parted:
            new.append(Row(list(row.cached), row.shares))
            for occupant in group:
                occupant.leave()
                new[-1].enter(occupant)
        if new:
            self.place(new, 0)
            assert self.cache is not None
            pairs = [(row.index, copy.index) for (row, _), copy in zip(parted, new, strict=True)]
            self.cache.copy(pairs, max(len(row.cached) for row in new))
        return new

    def free_empty(self) -> None:
        """Free the rows without occupants."""
        self._was_freed = True
        self.rows = [row if row and row.occupants else None for row in self.rows]

    def pack(self) -> None:
        """Compact the rows in use if many rows between them are free."""
        if not self._was_freed:
            return
        self._was_freed = False
        if self.cache is None or not self.taken:
            self._drop()
            return
        self._note_size()
        taken = self.taken
        needed = len(self.occupants) if self._on_gpu else len(taken)
        most_free = FREE_ROWS_ON_GPU if self._on_gpu else FREE_ROWS
        if self.span - needed <= most_free * self.span:
            return
        free = [i for i, row in enumerate(self.rows) if row is None]
        self.cache.select([*(row.index for row in taken), *free[: needed - len(taken)]])
        self.rows = [*taken, *[None] * (needed - len(taken))]
        for index, row in enumerate(taken):
            row.index = index

    def clear(self) -> None:
        """Free all rows, and drop the cache."""
        for occupant in self.occupants:
            occupant.lose_row()
        self._drop()

    def _drop(self) -> None:
        self._note_size()
        self.cache, self.rows = None, []

    def _note_size(self) -> None:
        """Record the size of the cache if none was wider."""
        if self.cache is not None and len(self.rows) >= self._widest[0]:
            self._widest = (len(self.rows), self.cache.length)
