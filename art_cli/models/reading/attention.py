"""One attention function for both who read the model: the engine and the trainer.

transformers lets a model call a registered attention function and passes keyword arguments of the
forward through to it. Ours hands the queries, keys and values of each layer to a *layout*: the
engine's writes them into its KV cache, the trainer's attends over a tree of shared prefixes. The
model's own code does everything else, so any architecture with full attention works.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "art"


class Layout(Protocol):
    """Where the tokens of one forward stand to each other."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return [B, T, H, D] of the forward's q [B, H, T, D] and k, v [B, K, T, D]."""
        ...


class Causal:
    """Plain left-to-right attention over each row."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return sdpa(q, k, v, scale, causal=True).transpose(1, 2)


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Compute attention with grouped keys; `mask` is True where a query may look."""
    grouped = q.shape[1] != k.shape[1]
    if grouped and q.shape[2] == 1 and mask is not None and mask.shape[1:3] == (1, 1):
        # One query a row: the heads of a group become queries of their one key head, so that
        # keys and values are read once a group.
        rows, heads, _, width = q.shape
        group = heads // k.shape[1]
        q = q.reshape(rows, k.shape[1], group, width)
        o = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask.expand(-1, -1, group, -1), scale=scale
        )
        return o.reshape(rows, heads, 1, width)
    if grouped and mask is not None and q.is_cuda:
        # No fused kernel takes both a mask and grouped keys; the one without keeps all scores.
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        grouped = False
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def one_query_sdpa(
    q: Tensor, shared: tuple[Tensor, Tensor], k: Tensor, v: Tensor, scale: float, mask: Tensor
) -> Tensor:
    """Compute attention of one query a row, q [B, H, 1, D], over shared keys and the row's own.

    `shared` keys and values [1, K, P, D] are read once for the whole batch; k, v [B, K, T, D] are
    the rows' own behind them, with `mask` [B, 1, 1, T] added to the scores. The softmax is over
    both: the same result as if each row held a copy ("cascade attention", 2402.05099).
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
    o = (w @ shared[1][0]).view(kv_heads, rows, group, width).transpose(0, 1)
    return (o + weights[..., num:] @ v).reshape(rows, heads, 1, width)


def _attention(
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scaling: float | None = None,
    layout: Layout | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    assert mask is None, "the layout alone says who attends to whom"
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    return (layout or Causal()).attend(int(module.layer_idx), q, k, v, scale), None  # type: ignore[arg-type]


ALL_ATTENTION_FUNCTIONS.register(NAME, _attention)
