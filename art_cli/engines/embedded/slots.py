"""The rows of one KV cache: which of them are taken, and by whom. It grows, and is packed again."""

from __future__ import annotations

from collections.abc import Callable

from art_cli.engines.embedded.row import Occupant, Row
from art_cli.models.forward.memory import Memory

FREE_ROWS = 0.3  # of all: the others are moved together
FREE_ROWS_ON_GPU = 0.5


class Slots:
    """A cache, and who is in which of its rows: those who are alike in one."""

    def __init__(self, make: Callable[[int, int], Memory], on_gpu: bool) -> None:
        """`make` returns a cache of so many rows of so many tokens."""
        self.cache: Memory | None = None
        self.rows: list[Row | None] = []
        self._make = make
        # A GPU's recordings end with the cache's size: there, each occupant has room for a row.
        self._on_gpu = on_gpu
        self._widest = (0, 0)  # the most rows that a cache had, and how long they became
        self._was_freed = False  # a row, since the last look at what is between them

    @property
    def taken(self) -> list[Row]:
        """The rows that hold someone's tokens."""
        return [row for row in self.rows if row]

    @property
    def occupants(self) -> list[Occupant]:
        """All who are in a row."""
        return [s for row in self.rows if row for s in row.occupants]

    @property
    def span(self) -> int:
        """Number of rows, from the first on, that a step of all that are taken has to run."""
        if self._on_gpu:
            return len(self.rows)
        return 1 + max((row.index for row in self.rows if row), default=-1)

    def place(self, new: list[Row], max_tokens: int) -> None:
        """Give new rows a place, with room for `max_tokens` behind what follows in them."""
        most = len(self.occupants) + sum(len(row.occupants) for row in new)
        needed = most if self._on_gpu else len(self.taken) + len(new)
        if self.cache is None:
            num = max(needed, min(most, self._widest[0]))
            longest = max(len(row.following) for row in new) + max_tokens
            # That of the batch before saves it from growing again.
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
        """Free the rows that nobody is in any more."""
        self._was_freed = True
        self.rows = [row if row and row.occupants else None for row in self.rows]

    def pack(self) -> None:
        """Move what is taken together where much between is free."""
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
        """Take all rows back, and drop the cache."""
        for occupant in self.occupants:
            occupant.lose_row()
        self._drop()

    def _drop(self) -> None:
        self._note_size()
        self.cache, self.rows = None, []

    def _note_size(self) -> None:
        """Note how large the cache is, if none was wider."""
        if self.cache is not None and len(self.rows) >= self._widest[0]:
            self._widest = (len(self.rows), self.cache.length)
