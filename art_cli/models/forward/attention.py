"""The attention function that engine and trainer share.

transformers lets a model call a registered attention function and passes it keyword arguments of
the forward. Ours passes the queries, keys and values of each layer to a *layout*. The engine's
layout writes them into its KV cache; the trainer's attends over a tree of shared prefixes. The
model's own code does everything else. A `Look` describes the attention of a layer (a window, a soft
cap, sinks). Any other argument is an error, never ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from art_cli.errors import UsageError

NAME = "art"
# Arguments that models also pass and that have no effect here, because the layout defines the mask.
WITHOUT_EFFECT = {
    *("is_causal", "position_ids", "use_cache", "output_attentions", "past_key_values"),
    *("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"),
    *("output_router_logits", "output_hidden_states", "return_dict"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The attention parameters of one layer."""

    scale: float
    window: int | None = None  # number of visible tokens, the query's own included
    chunk: int | None = None  # only tokens of the same chunk of positions are visible
    softcap: float | None = None  # scores become cap * tanh(score / cap): Gemma 2, 2408.00118
    sinks: Tensor | None = None  # [H] scores in the softmax that have no value: gpt-oss

    @property
    def is_plain(self) -> bool:
        """True for plain softmax(q k / sqrt(d)) v over all earlier tokens."""
        further = (self.window, self.chunk, self.softcap, self.sinks)
        return all(x is None for x in further)

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """The fields that determine the masks."""
        return self.window, self.chunk

    def sees(self, query: Tensor, key: Tensor) -> Tensor:
        """Return True where a query position sees a key position. The arguments broadcast."""
        seen = key <= query
        if self.window:
            seen = seen & (key > query - self.window)
        if self.chunk:
            seen = seen & (key // self.chunk == query // self.chunk)
        return seen


class Layout(Protocol):
    """Decides which keys each token of one forward attends to."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, look: Look) -> Tensor:
        """Return [B, T, H, D] from the forward's q [B, H, T, D] and k, v [B, K, T, D]."""
        ...


class Causal:
    """Left-to-right attention over each row. Keys may start before the queries, as in a cache."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, look: Look) -> Tensor:
        if q.shape[2] == k.shape[2] and look.is_plain:
            return attention(q, k, v, look, causal=True).transpose(1, 2)
        keys = torch.arange(k.shape[2], device=q.device)
        mask = look.sees(keys[-q.shape[2] :, None], keys)
        return attention(q, k, v, look, mask[None, None]).transpose(1, 2)


def attention(
    q: Tensor, k: Tensor, v: Tensor, look: Look, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Compute attention with grouped keys: [B, H, T, D].

    `mask` is True where a query sees a key, or is added to the scores. It includes window and
    chunk.
    """
    if look.softcap or look.sinks is not None:
        assert mask is not None
        return _scored(q, k, v, look, mask)
    return _sdpa(q, k, v, look.scale, mask, causal)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    if grouped and q.shape[2] == 1 and mask is not None and mask.shape[1:3] == (1, 1):
        # One query a row: the heads of a group become queries of their shared key head, so keys and
        # values are read once per group.
        rows, heads, _, width = q.shape
        group = heads // k.shape[1]
        q = q.reshape(rows, k.shape[1], group, width)
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask.expand(-1, -1, group, -1), scale=scale
        )
        return o.reshape(rows, heads, 1, v.shape[-1])
    if grouped and mask is not None and q.is_cuda:
        # No fused kernel supports both a mask and grouped keys, and the other one stores all
        # scores.
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        grouped = False
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _scored(q: Tensor, k: Tensor, v: Tensor, look: Look, mask: Tensor) -> Tensor:
    """Compute attention step by step, for score changes that fused kernels do not support."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.mT).float() * look.scale
    if look.softcap:
        scores = torch.tanh(scores / look.softcap) * look.softcap
    hides = mask.dtype == torch.bool
    scores = scores.masked_fill(~mask, -torch.inf) if hides else scores + mask
    if look.sinks is None:
        return scores.softmax(-1).to(v.dtype) @ v
    sinks = look.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    weights = torch.cat([scores, sinks], -1).softmax(-1)
    return weights[..., :-1].to(v.dtype) @ v


def one_query_sdpa(
    q: Tensor, shared: tuple[Tensor, Tensor], k: Tensor, v: Tensor, scale: float, mask: Tensor
) -> Tensor:
    """Compute attention of one query a row, q [B, H, 1, D], over shared and own keys.

    `shared` keys and values [1, K, P, D] are read once for the whole batch. k, v [B, K, T, D] are
    the rows' own after them, with `mask` [B, 1, 1, T] added to the scores. The softmax is over
    both, so the result is the same as if each row held a copy ("cascade attention", 2402.05099).
    """
    rows, heads, _, width = q.shape
    kv_heads = k.shape[1]
    group = heads // kv_heads
    q = q.reshape(rows, kv_heads, group, width) * scale
    by_head = q.transpose(0, 1).reshape(kv_heads, rows * group, width)
    first = (by_head @ shared[0][0].mT).view(kv_heads, rows, group, -1).transpose(0, 1)
    scores = torch.cat([first, q @ k.mT + mask], -1)
    weights = torch.softmax(scores, -1)
    num = shared[0].shape[2]
    w = weights[..., :num].transpose(0, 1).reshape(kv_heads, rows * group, num)
    o = (w @ shared[1][0]).view(kv_heads, rows, group, -1).transpose(0, 1)
    return (o + weights[..., num:] @ v).reshape(rows, heads, 1, -1)


def _attention(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    dropout: float = 0.0,
    **further: Any,
) -> tuple[Tensor, None]:
    """Attend as the layout defines. Raises UsageError for unsupported arguments."""
    unknown = {n for n, value in further.items() if value is not None} - WITHOUT_EFFECT
    unknown |= {"attention_mask"} if mask is not None else set()
    unknown |= {"dropout"} if dropout else set()
    if unknown:
        raise UsageError(
            f"{type(module).__name__} asks for attention with {', '.join(sorted(unknown))}, which "
            "is not implemented"
        )
    look = Look(
        scale=q.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
        chunk=_chunk(module),
        softcap=softcap,
        sinks=s_aux,
    )
    return (layout or Causal()).attend(int(module.layer_idx), q, k, v, look), None  # type: ignore[arg-type]


def _chunk(module: Any) -> int | None:
    """Return the chunk size of a layer that has one (Llama 4): models put it in the mask only."""
    kinds = getattr(module.config, "layer_types", None)
    if kinds and kinds[module.layer_idx] == "chunked_attention":
        return module.config.attention_chunk_size
    return None


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
