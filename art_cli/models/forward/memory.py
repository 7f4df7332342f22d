"""Interface of caches that hold the tokens that a batch of rows has read."""

from __future__ import annotations

from typing import Any, Protocol, Self

import torch
from torch import Tensor

from art_cli.models.forward.attention import Layout


class Reader(Protocol):
    """A model that reads with a `Memory`: `Policy`, or its reference."""

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
        """Return the same, by transformers' own forward, which updates its cache `past`."""
        ...


class Memory(Protocol):
    """Rows of tokens that were read. Implemented by `KVCache`, `StateCache` and `NativeCaches`."""

    length: int  # capacity of a row in tokens, if it is limited
    may_pad: bool  # rows may be read with padding, which later tokens overwrite

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        ...

    def read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], shared: Any
    ) -> Tensor:
        """Read new tokens. Return the hidden states [R, D] of the last new token of each row.

        `rows` must ascend. The tokens of each row start at its position in `starts`. `shared` is
        None, or a memory of one row that is a common prefix of all these rows.
        """
        ...

    def select(self, rows: list[int]) -> None:
        """Keep only these rows, in this order."""
        ...

    def add_rows(self, num: int) -> None:
        """Append empty rows."""
        ...

    def copy_prefix(self, source: Self, rows: list[int], length: int) -> None:
        """Copy the `length` tokens of the source's only row into these rows."""
        ...

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        """Copy at most `length` tokens from the first row of each pair into the second."""
        ...

    def mark(self, row: int, length: int) -> None:
        """Save the present state of a row of `length` tokens, at the start of a turn."""
        ...

    def rewind(self, row: int, length: int, wanted: int) -> int:
        """Rewind a row of `length` tokens to at most `wanted`. Return the number of tokens left."""
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
