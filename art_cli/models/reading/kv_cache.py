"""Keys and values of many episodes: what an engine keeps between their turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from art_cli.models.reading.attention import one_query_sdpa, sdpa

if TYPE_CHECKING:
    from art_cli.models.policy import Policy, Reference


class KVCache:
    """Keys and values, one left-aligned row an episode, each with its own length."""

    def __init__(self, policy: Policy | Reference, rows: int, length: int) -> None:
        config = policy.base.config.get_text_config()
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        self._shape = (rows, kv_heads, length, width)
        like = {"dtype": policy.head.dtype, "device": policy.device}
        self._dtype = policy.head.dtype
        layers = range(config.num_hidden_layers)
        self.keys = [torch.zeros(self._shape, **like) for _ in layers]
        self.values = [torch.zeros(self._shape, **like) for _ in layers]

    def at(
        self, rows: Tensor | None, positions: Tensor, end: int, shared: KVCache | None = None
    ) -> CacheLayout:
        """Return the layout of a forward of tokens at positions [R, T] of these rows (None: all).

        All positions are before `end`. The rows all begin with what `shared` holds, if that is
        given; then it is read from there.
        """
        if end > self.length:
            self._grow(end)
        own = torch.arange(shared.length if shared else 0, end, device=positions.device)
        # Added to the scores; a boolean mask would be made into this again in every layer.
        mask = torch.where(own > positions[:, None, :, None], -torch.inf, 0).to(self._dtype)
        return CacheLayout(self, rows, positions, end, shared, mask)

    @property
    def num_rows(self) -> int:
        """How many episodes it has room for."""
        return self.keys[0].shape[0]

    @property
    def length(self) -> int:
        """How many positions each row has room for."""
        return self.keys[0].shape[2]

    def select(self, rows: list[int]) -> None:
        """Keep only these rows, in this order."""
        index = torch.tensor(rows, device=self.keys[0].device)
        self.keys = [x[index] for x in self.keys]
        self.values = [x[index] for x in self.values]

    def add_rows(self, num: int) -> None:
        """Append empty rows."""
        self.keys = [_pad(x, 0, num) for x in self.keys]
        self.values = [_pad(x, 0, num) for x in self.values]

    def copy_prefix(self, source: KVCache, rows: list[int], length: int) -> None:
        """Take the first `length` positions of the source's only row into these rows."""
        if length > self.keys[0].shape[2]:
            self._grow(length)
        for mine, theirs in zip(self.keys + self.values, source.keys + source.values, strict=True):
            mine[rows, :, :length] = theirs[0, :, :length]

    def copy(self, pairs: list[tuple[int, int]], start: int, end: int) -> None:
        """Give the second row of each pair what the first holds from `start` to `end`."""
        if not pairs:
            return
        source, target = torch.tensor(pairs, device=self.keys[0].device).unbind(1)
        for x in self.keys + self.values:
            x[target, :, start:end] = x[source, :, start:end]

    def _grow(self, needed: int) -> None:
        more = max(needed, self.keys[0].shape[2] * 3 // 2) - self.keys[0].shape[2]
        self.keys = [_pad(x, 2, more) for x in self.keys]
        self.values = [_pad(x, 2, more) for x in self.values]


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Where the tokens of one forward stand in the rows of a cache."""

    cache: KVCache
    rows: Tensor | None  # None: all
    positions: Tensor  # [R, T]
    end: int  # behind the last position
    shared: KVCache | None  # what all rows begin with
    mask: Tensor  # [R, 1, T, K], added to the scores

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """See Layout. Write the new keys and values, and attend over each row up to its query."""
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        rows, end = self.rows, self.end
        if rows is None and k.shape[2] == 1:
            where = self.positions.view(-1, 1, 1, 1).expand(-1, k.shape[1], 1, k.shape[3])
            keys.scatter_(2, where, k)
            values.scatter_(2, where, v)
        else:
            index = torch.arange(len(keys), device=k.device) if rows is None else rows
            keys[index[:, None], :, self.positions] = k.transpose(1, 2)
            values[index[:, None], :, self.positions] = v.transpose(1, 2)
        start = self.shared.length if self.shared else 0
        if rows is None:
            keys, values = keys[:, :, start:end], values[:, :, start:end]
        else:
            keys, values = keys[rows, :, start:end], values[rows, :, start:end]
        if self.shared:
            shared = self.shared.keys[layer], self.shared.values[layer]
            return one_query_sdpa(q, shared, keys, values, scale, self.mask).transpose(1, 2)
        return sdpa(q, keys, values, scale, mask=self.mask).transpose(1, 2)


def _pad(x: Tensor, dim: int, more: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = more
    return torch.cat([x, x.new_zeros(shape)], dim)
