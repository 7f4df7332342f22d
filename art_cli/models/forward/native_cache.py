"""transformers' own caches, extended so that one prefix can be continued in several ways.

transformers' layers write convolution and recurrent states in place. That would change the state
that a sibling continues from, and tensors needed by the backward pass. The layers here replace the
states instead.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import Cache, DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionCacheLayerMixin

from art_cli.models.forward.attention import Causal
from art_cli.models.forward.memory import Reader
from art_cli.models.forward.tree_attention import Span

STATES = ("conv_states", "recurrent_states")  # of a recurrent layer in a cache


class Replaced:
    """A recurrent layer's part of a cache, whose states are new tensors after each forward pass."""

    record_past: bool
    has_previous_state: dict[int, bool]
    conv_states: dict[int, Tensor]
    recurrent_states: dict[int, Tensor]
    is_conv_states_initialized: dict[int, bool]
    is_recurrent_states_initialized: dict[int, bool]
    conv_kernel_size: dict[int, int]

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any
    ) -> Tensor:
        """Return the stored convolution inputs followed by the new ones. Store the last of them."""
        if self.has_previous_state[state_idx]:
            size = self.conv_states[state_idx].shape[-1]
            whole = torch.cat([self.conv_states[state_idx], conv_states], -1)
        else:
            size = conv_kernel_size or conv_states.shape[-1]
            whole = F.pad(conv_states, (max(0, size - conv_states.shape[-1]), 0))
        self.conv_kernel_size[state_idx] = size
        self.has_previous_state[state_idx] = self.is_conv_states_initialized[state_idx] = True
        self.conv_states[state_idx] = whole[..., -size:]
        return whole

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **_: Any
    ) -> Tensor:
        """Store the new state, and return it."""
        self.is_recurrent_states_initialized[state_idx] = True
        self.recurrent_states[state_idx] = recurrent_states
        return recurrent_states


def mixed(mixin: type, layer: Any) -> Any:
    """Return a copy of a cache layer with the methods of `mixin` in front of its own."""
    made = object.__new__(_mixed_class(mixin, type(layer)))
    vars(made).update(vars(layer))
    return made


@lru_cache
def _mixed_class(mixin: type, kind: type) -> type:
    # Unset _layer_type, or transformers would register this class for its layer type.
    return type(f"{mixin.__name__}{kind.__name__}", (mixin, kind), {"_layer_type": None})


def new_cache(config: Any, whole: bool) -> Cache:
    """Return an empty cache of a model.

    With `whole`, a layer with a window also keeps all of its keys, as our attention requires.
    """
    cache = DynamicCache(config=config)
    for i, layer in enumerate(cache.layers):
        if isinstance(layer, LinearAttentionCacheLayerMixin):
            # With record_past, a single token takes the same code path as several, through the
            # methods of `Replaced`.
            cache.layers[i] = mixed(Replaced, layer)
            cache.layers[i].record_past = True  # type: ignore[union-attr]
        elif whole:
            cache.layers[i] = DynamicLayer()
    return cache


def fork(cache: Cache) -> Cache:
    """Return a cache that continues from this one without changing it."""
    other = copy.copy(cache)
    other.layers = []
    for layer in cache.layers:
        mine = copy.copy(layer)
        for name, value in vars(layer).items():
            if isinstance(value, dict):
                setattr(mine, name, dict(value))
        for name in STATES:  # single-token steps write states in place
            of_layer = getattr(layer, name, {}).items()
            setattr(mine, name, {i: x if x is None else x.clone() for i, x in of_layer})
        other.layers.append(mine)
    return other


@contextmanager
def _states_kept(past: Cache | None) -> Iterator[None]:
    """Preserve the present states of `past` for the backward pass.

    A forward inside this context may overwrite them: the recurrence of a single token does.
    """
    layers = past.layers if past else []
    states = [x for a in layers for name in STATES for x in getattr(a, name, {}).values()]
    places = {x.untyped_storage().data_ptr() for x in states if x is not None}
    if not places:
        yield
        return

    def keep(x: Tensor) -> Tensor:
        return x.clone() if x.untyped_storage().data_ptr() in places else x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        yield


def by_node(
    reader: Reader,
    ids: Tensor,
    positions: Tensor,
    spans: list[Span],
    whole: bool,
    recompute: bool,
) -> Tensor:
    """Return the hidden states [1, N, D] of packed ids [1, N], with one forward per tree node.

    A node continues from its parent's cache. `whole` is described at `new_cache`. With `recompute`,
    a node stores only its inputs and is run again in the backward pass.
    """
    parents = {span.parent for span in spans}
    caches: dict[int | None, Cache] = {}
    parts: dict[int, Tensor] = {}

    def run(i: int, part: slice) -> Tensor:
        parent, past = caches.get(spans[i].parent), None
        if parent is not None:
            past = fork(parent)
        elif i in parents:
            past = new_cache(reader.base.config, whole)
        with _states_kept(past):
            hidden = reader.decode(ids[:, part], positions[:, part], past, Causal())
        if i in parents and past is not None:
            caches[i] = past
        return hidden

    for i, span in enumerate(spans):
        part = slice(span.first, span.first + span.num)
        if recompute:
            parts[span.first] = checkpoint(run, i, part, use_reentrant=False)  # type: ignore[assignment]
        else:
            parts[span.first] = run(i, part)
    return torch.cat([parts[first] for first in sorted(parts)], 1)


class NativeCaches:
    """One transformers cache a row, read row by row. Works for any family. Implements `Memory`.

    Without `keeps`, only the tokens are stored, and each read starts at the first token. This is
    for families without a cache, or whose cache cannot continue with several tokens.
    """

    may_pad = False
    length = 0

    def __init__(self, reader: Reader, rows: int, whole: bool, keeps: bool) -> None:
        """`whole` is described at `new_cache`."""
        self._reader = reader
        self._whole = whole
        self._keeps = keeps
        self._rows: list[_Row] = [_Row() for _ in range(rows)]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return len(self._rows)

    def read(
        self, rows: list[int], tokens: list[list[int]], starts: list[int], shared: Any
    ) -> Tensor:
        """See `Memory`."""
        return torch.cat([self._read(*each) for each in zip(rows, tokens, starts, strict=True)])

    def _read(self, row: int, tokens: list[int], start: int) -> Tensor:
        mine = self._rows[row]
        mine.ids = mine.ids[:start] + tokens
        past = None
        if self._keeps:
            if not start or mine.cache is None:
                mine.cache = new_cache(self._reader.base.config, self._whole)
            past = mine.cache
        else:
            tokens, start = mine.ids, 0
        ids = torch.tensor([tokens], device=self._reader.device)
        positions = torch.arange(start, start + len(tokens), device=ids.device)[None]
        return self._reader.decode(ids, positions, past, Causal())[:, -1]

    def select(self, rows: list[int]) -> None:
        """See `Memory`."""
        self._rows = [self._rows[i] for i in rows]

    def add_rows(self, num: int) -> None:
        """See `Memory`."""
        self._rows += [_Row() for _ in range(num)]

    def copy_prefix(self, source: NativeCaches, rows: list[int], length: int) -> None:
        """See `Memory`."""
        for row in rows:
            self._rows[row] = source._rows[0].forked()

    def copy(self, pairs: list[tuple[int, int]], length: int) -> None:
        """See `Memory`."""
        for source, target in pairs:
            self._rows[target] = self._rows[source].forked()
            self._rows[target].marked = self._rows[source].marked

    def mark(self, row: int, length: int) -> None:
        """See `Memory`."""
        self._rows[row].marked = self._rows[row].forked()

    def rewind(self, row: int, length: int, wanted: int) -> int:
        """See `Memory`."""
        if not self._keeps or wanted >= length:
            return wanted
        marked = self._rows[row].marked
        if marked is None or len(marked.ids) > wanted:
            return 0
        self._rows[row] = marked.forked()
        self._rows[row].marked = marked
        return len(marked.ids)


class _Row:
    """The tokens that one row has read, and a copy of the row from the start of its turn."""

    def __init__(self, ids: list[int] | None = None, cache: Cache | None = None) -> None:
        self.ids = ids or []
        self.cache = cache
        self.marked: _Row | None = None

    def forked(self) -> _Row:
        """Return a row that continues from this one."""
        return _Row(list(self.ids), None if self.cache is None else fork(self.cache))
