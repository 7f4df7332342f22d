"""One attention function for both who read the model: the engine and the trainer.

transformers lets a model call a registered attention function and passes keyword arguments of the
forward through to it. Ours hands the queries, keys and values of each layer to a *layout*: the
engine's writes them into its KV cache, the trainer's attends over a tree of shared prefixes. The
model's own code does everything else, so any architecture with full attention works.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "art"


class Layout(Protocol):
    """Where the tokens of one forward stand to each other."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """q [B, H, T, D] and k, v [B, K, T, D] of the forward's tokens -> [B, T, H, D]."""
        ...


class Causal:
    """Plain left-to-right attention over each row."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """See Layout."""
        return sdpa(q, k, v, scale, causal=True).transpose(1, 2)


def sdpa(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    """Attention with grouped keys; `mask` is True where a query may look."""
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
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


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
