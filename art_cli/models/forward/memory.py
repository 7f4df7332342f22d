"""The cache of the tokens that a batch of rows has read, so that they are read once."""

from __future__ import annotations

from typing import Any, Protocol, Self

import torch
from torch import Tensor

from art_cli.models.forward.attention import Layout


class Reader(Protocol):
    """A model, as far as it is read with a memory: `Policy`, or its reference."""

    @property
    def base(self) -> Any:
        """The transformers model."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        ...

    def hidden(self, ids: Tensor, positions: Tensor, layout: Layout | None = None) -> Tensor:
        """Return the last hidden states [R, T, D] of ids [R, T] at positions [R, T]."""
        ...

    def decode(
        self, ids: Tensor, positions: Tensor, past: Any = None, layout: Layout | None = None
    ) -> Tensor:
        """Return the same by transformers' own forward, which reads and writes its cache `past`."""
        ...


class Memory(Protocol):
    """Rows of tokens that were read; implemented by KVCache, StateCache and NativeCaches."""

    length: int  # positions that each row has room for, where that matters
    may_pad: bool  # rows may be read beyond their tokens: what follows overwrites it

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        ...

    def read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], shared: Any
    ) -> Tensor:
        """Return the hidden states [R, D] behind the last of the new tokens of each row.

        `rows` ascend; the tokens of each begin at its position in `starts`. `shared` is a memory of
        one row with which all of these begin, or None.
        """
        ...

    def select(self, rows: list[int]) -> None:
        """Keep only these rows, in this order."""
        ...

    def add_rows(self, num: int) -> None:
        """Append empty rows."""
        ...

    def copy_prefix(self, source: Self, rows: list[int], length: int) -> None:
        """Give these rows what the source's only row holds, `length` tokens."""
        ...

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        """Give the second row of each pair what the first has read: at most `length` tokens."""
        ...

    def mark(self, row: int, length: int) -> None:
        """Remember the row as it is, with `length` tokens: a turn begins."""
        ...

    def rewind(self, row: int, length: int, wanted: int) -> int:
        """Take a row of `length` tokens back to at most `wanted`. Return to how many."""
        ...


def padded(
    tokens: list[list[int]], starts: list[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return ids and positions [R, T] of rows of tokens, padded on the right."""
    width = max(map(len, tokens))
    flat = [i for t in tokens for i in (*t, *[0] * (width - len(t)))]
    ids = torch.tensor(flat, device=device).view(-1, width)
    first = torch.tensor(starts, device=device)[:, None]
    return ids, first if width == 1 else first + torch.arange(width, device=device)


def last_of(hidden: Tensor, tokens: list[list[int]]) -> Tensor:
    """Return the states [R, D] of the last token of each row of hidden [R, T, D]."""
    if hidden.shape[1] > 1:
        last = torch.tensor([len(t) - 1 for t in tokens], device=hidden.device)[:, None, None]
        hidden = hidden.gather(1, last.expand(-1, 1, hidden.shape[2]))
    return hidden[:, 0]
