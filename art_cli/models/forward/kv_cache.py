"""Cache of keys and values of many episodes, which an engine keeps between turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from art_cli.models.forward.attention import Look, attention, one_query_sdpa
from art_cli.models.forward.decoder import decoder_of
from art_cli.models.forward.memory import Reader, last_of, padded
from art_cli.models.forward.next_token import NextToken, has_static_angles, next_token_of
from art_cli.models.forward.replay import STRIDE, ReplayedSteps


class KVCache:
    """Keys and values, with one left-aligned row an episode, each with its own length.

    Implements `Memory`. A layer's tensors are created when it first writes, because layers may
    differ in heads and widths.
    """

    may_pad = True

    def __init__(self, reader: Reader, rows: int, length: int, quick: bool = False) -> None:
        """With `quick`, the reader is of the Llama family; see `Ways`."""
        self._reader = reader
        self._quick = quick
        self.num_rows = rows
        self.length = length  # capacity of a row, in tokens
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self._replayed = ReplayedSteps() if quick and can_be_recorded(reader) else None

    def read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], shared: KVCache | None
    ) -> Tensor:
        """See `Memory`. All rows begin with the tokens in `shared`, if given."""
        width = max(map(len, tokens))
        ids, positions = padded(tokens, starts, self._reader.device)
        end = max(starts) + width
        index = self.index(rows)
        if width == 1 and len(rows) == self.num_rows and self._replayed:
            self._make_room(end)
            end = min(-(-end // STRIDE) * STRIDE, self.length)
            return self._replayed.take(self._step, ids, positions, end)
        layout = self.at(index, positions, end, shared)
        if width == 1 and self._next_token:
            return self._next_token(ids[:, 0], positions[:, 0], end, layout)
        return last_of(self._reader.hidden(ids, positions, layout), tokens)

    @cached_property
    def _next_token(self) -> NextToken | None:
        """The single-token reader, with a copy of the weights that the cache was computed by."""
        return next_token_of(decoder_of(self._reader.base)) if self._quick else None

    def _step(self, ids: Tensor, positions: Tensor, end: int) -> Tensor:
        """Return the hidden states [R, D] of ids [R, 1], one per row."""
        return self._reader.hidden(ids, positions, self.at(None, positions, end))[:, 0]

    def index(self, rows: list[int]) -> Tensor | None:
        """Return ascending rows as a tensor, or None if they are the first ones."""
        are_first = rows[-1] == len(rows) - 1
        return None if are_first else torch.tensor(rows, device=self._reader.device)

    def at(
        self, rows: Tensor | None, positions: Tensor, end: int, shared: KVCache | None = None
    ) -> CacheLayout:
        """Return the layout of a forward of tokens at positions [R, T] of these rows.

        Without `rows`, they are the first R. All positions are below `end`.
        """
        self._make_room(end)
        return CacheLayout(self, rows, positions, end, shared)

    def of_layer(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cached keys and values [R, K, length, D] of a layer, shaped like k and v."""
        if layer not in self.keys:
            for store, x in ((self.keys, k), (self.values, v)):
                store[layer] = x.new_zeros(self.num_rows, x.shape[1], self.length, x.shape[3])
        return self.keys[layer], self.values[layer]

    def select(self, rows: list[int]) -> None:
        """Keep only these rows, in this order."""
        index = torch.tensor(rows, device=self._reader.device)
        self._each(lambda x: x[index])
        self.num_rows = len(rows)

    def add_rows(self, num: int) -> None:
        """Append empty rows."""
        self._each(lambda x: _pad(x, 0, num))
        self.num_rows += num

    def copy_prefix(self, source: KVCache, rows: list[int], length: int) -> None:
        """Copy the first `length` positions of the source's only row into these rows."""
        self._make_room(length)
        for layer, k in source.keys.items():
            v = source.values[layer]
            for mine, theirs in zip(self.of_layer(layer, k, v), (k, v), strict=True):
                mine[rows, :, :length] = theirs[0, :, :length]

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        """See `Memory`."""
        source, target = torch.tensor(pairs, device=self._reader.device).unbind(1)
        for x in (*self.keys.values(), *self.values.values()):
            x[target, :, :length] = x[source, :, :length]

    def mark(self, row: int, length: int) -> None:
        """See `Memory`. Nothing is stored, because the cache can rewind to any position."""

    def rewind(self, row: int, length: int, wanted: int) -> int:
        """See `Memory`."""
        return wanted

    def _make_room(self, needed: int) -> None:
        if needed <= self.length:
            return
        more = max(needed, self.length * 3 // 2) - self.length
        self._each(lambda x: _pad(x, 2, more))
        self.length += more

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        for store in (self.keys, self.values):
            for layer, x in store.items():  # one by one, to limit peak memory
                store[layer] = change(x)
        if self._replayed:
            self._replayed.forget()


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """The positions in a cache's rows of the tokens of one forward."""

    cache: KVCache
    rows: Tensor | None  # None: the first R
    positions: Tensor  # [R, T]
    end: int  # one past the last position
    shared: KVCache | None  # common prefix of all rows
    # [R, 1, T, K], added to the scores, by `Look.reach` and the first key
    masks: dict[tuple[int | None, int | None, int], Tensor] = field(default_factory=dict)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, look: Look) -> Tensor:
        """See `Layout`. Write the new keys and values. Attend over each row up to its query."""
        keys, values = self.cache.of_layer(layer, k, v)
        rows, end = self.rows, self.end
        if rows is None:
            keys, values = keys[: len(k)], values[: len(v)]
        if rows is None and k.shape[2] == 1:
            where = self.positions.view(-1, 1, 1, 1)
            keys.scatter_(2, where.expand(-1, k.shape[1], 1, k.shape[3]), k)
            values.scatter_(2, where.expand(-1, v.shape[1], 1, v.shape[3]), v)
        else:
            index = torch.arange(len(keys), device=k.device) if rows is None else rows
            keys[index[:, None], :, self.positions] = k.transpose(1, 2)
            values[index[:, None], :, self.positions] = v.transpose(1, 2)
        shared = self.shared if look.is_plain else None  # otherwise use the row's own copy
        start = shared.length if shared else 0
        if rows is None:
            keys, values = keys[:, :, start:end], values[:, :, start:end]
        else:
            keys, values = keys[rows, :, start:end], values[rows, :, start:end]
        mask = self._mask(look, start, q.dtype)
        if shared:
            first = shared.keys[layer], shared.values[layer]
            return one_query_sdpa(q, first, keys, values, look.scale, mask).transpose(1, 2)
        return attention(q, keys, values, look, mask).transpose(1, 2)

    def _mask(self, look: Look, start: int, dtype: torch.dtype) -> Tensor:
        key = (*look.reach, start)
        if key not in self.masks:
            own = torch.arange(start, self.end, device=self.positions.device)
            seen = look.sees(self.positions[:, None, :, None], own)
            # A boolean mask would be converted to this in every layer.
            self.masks[key] = torch.where(seen, 0.0, -torch.inf).to(dtype)
        return self.masks[key]


def can_be_recorded(reader: Reader) -> bool:
    """Return whether the steps of a Llama-family model can be recorded as CUDA graphs."""
    is_plain = reader.device.type == "cuda" and not getattr(reader.base, "is_quantized", False)
    return is_plain and has_static_angles(decoder_of(reader.base))


def _pad(x: Tensor, dim: int, more: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = more
    return torch.cat([x, x.new_zeros(shape)], dim)
