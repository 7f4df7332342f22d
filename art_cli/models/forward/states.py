"""Cache for models with recurrent layers: one state a row, in the same batches as the KV cache.

A state has no positions, so it cannot be padded or truncated. Rows are therefore read together only
if they have equally many new tokens. A copy of each state is taken at the start of a turn, to
rewind to when a conversation forks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin, LinearAttentionCacheLayerMixin

from art_cli.models.forward.kv_cache import KVCache
from art_cli.models.forward.memory import Reader, last_of, padded
from art_cli.models.forward.native_cache import mixed, new_cache

State = dict[tuple[int, str, int], Tensor]  # (layer, kind, index within the layer): [R, ...]


def has_states(config: Any) -> bool:
    """Return whether a family stores recurrent states in transformers' cache."""
    layers = new_cache(config, whole=True).layers
    return any(isinstance(layer, LinearAttentionCacheLayerMixin) for layer in layers)


class StateCache(KVCache):
    """Keys and values of attention layers and states of recurrent ones. Implements `Memory`."""

    may_pad = False

    def __init__(self, reader: Reader, rows: int, length: int) -> None:
        super().__init__(reader, rows, length)
        self._states: State = {}
        self._marks: dict[
            int, tuple[int, State]
        ] = {}  # by row: number of tokens, the state after them

    def read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], shared: KVCache | None
    ) -> Tensor:
        """See `Memory`."""
        out: dict[int, Tensor] = {}
        alike: dict[tuple[int, bool], list[int]] = {}
        for i, (new, start) in enumerate(zip(tokens, starts, strict=True)):
            alike.setdefault((len(new), start == 0), []).append(i)
        for (_, is_new), which in alike.items():
            part = [rows[i] for i in which]
            hidden = self._read(
                part, [tokens[i] for i in which], [starts[i] for i in which], is_new
            )
            out |= dict(zip(which, hidden, strict=True))
        return torch.stack([out[i] for i in range(len(rows))])

    def _read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], is_new: bool
    ) -> Tensor:
        ids, positions = padded(tokens, starts, self._reader.device)
        layout = self.at(self.index(rows), positions, max(starts) + ids.shape[1])
        index = torch.tensor(rows, device=ids.device)
        past = self._given(index, is_new)
        hidden = self._reader.decode(ids, positions, past, layout)
        self._take(index, past)
        return last_of(hidden, tokens)

    def _given(self, rows: Tensor, is_new: bool) -> Cache:
        """Return a cache with the states of these rows, for the next forward."""
        past = new_cache(self._reader.base.config, whole=True)
        for i, layer in enumerate(past.layers):
            if isinstance(layer, CacheLayerMixin):
                layer = past.layers[i] = mixed(Passing, layer)
            if is_new or not isinstance(layer, LinearAttentionCacheLayerMixin):
                continue
            for (number, kind, which), x in self._states.items():
                if number == i:
                    getattr(layer, f"{kind}_states")[which] = x[rows]
                    getattr(layer, f"is_{kind}_states_initialized")[which] = True
                    layer.has_previous_state[which] = True
        return past

    def _take(self, rows: Tensor, past: Cache) -> None:
        """Store the states after a forward."""
        for i, layer in enumerate(past.layers):
            for kind in ("conv", "recurrent"):
                for which, x in (getattr(layer, f"{kind}_states", None) or {}).items():
                    if x is None or not getattr(layer, f"is_{kind}_states_initialized")[which]:
                        continue
                    key = (i, kind, which)
                    if key not in self._states:
                        self._states[key] = x.new_zeros(self.num_rows, *x.shape[1:])
                    self._states[key][rows] = x

    def select(self, rows: list[int]) -> None:
        """See `Memory`."""
        super().select(rows)
        index = torch.tensor(rows, device=self._reader.device)
        self._states = {key: x[index] for key, x in self._states.items()}
        self._marks = {i: self._marks[r] for i, r in enumerate(rows) if r in self._marks}

    def add_rows(self, num: int) -> None:
        """See `Memory`."""
        super().add_rows(num)
        more = {k: torch.cat([x, x.new_zeros(num, *x.shape[1:])]) for k, x in self._states.items()}
        self._states = more

    def copy_prefix(self, source: KVCache, rows: list[int], length: int) -> None:
        """See `Memory`."""
        assert isinstance(source, StateCache)
        super().copy_prefix(source, rows, length)
        for key, x in source._states.items():
            if key not in self._states:
                self._states[key] = x.new_zeros(self.num_rows, *x.shape[1:])
            self._states[key][rows] = x[0]

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        """See `Memory`."""
        super().copy(pairs, length)
        source, target = torch.tensor(pairs, device=self._reader.device).unbind(1)
        for x in self._states.values():
            x[target] = x[source]
        for one, other in pairs:
            self._marks.pop(other, None)
            if one in self._marks:
                self._marks[other] = self._marks[one]

    def mark(self, row: int, length: int) -> None:
        """See `Memory`."""
        self._marks[row] = length, {key: x[row].clone() for key, x in self._states.items()}

    def rewind(self, row: int, length: int, wanted: int) -> int:
        """See `Memory`."""
        if wanted >= length:
            return length
        marked, states = self._marks.get(row, (0, {}))
        if not 0 < marked <= wanted:
            return 0
        for key, x in states.items():
            self._states[key][row] = x
        return marked


class Passing:
    """An attention layer's part of a cache that stores nothing: the layout holds the KV cache."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Return the arguments unchanged."""
        return key_states, value_states

    def get_seq_length(self) -> int:
        """Return 0, because positions are passed with each forward."""
        return 0
