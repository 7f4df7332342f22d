"""Attention over a tree of shared prefixes on a CPU, without copying large prefixes.

In pre-order, all descendants of a node are consecutive and see the whole node: one call without a
mask. The remaining keys, a node's own tokens and those of its small ancestors, are gathered into a
row. Partial softmaxes are combined by their log-sum-exps ("cascade attention", 2402.05099). Given
the total result and log-sum-exp, the backward of a part yields its part of the gradients, so only
these two tensors are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

APART = 100  # tokens of a node that is handled separately; the kernel is slow with fewer keys

Indices = NDArray[np.int64]

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def pad(rows: list[Indices]) -> Indices:
    """Return the rows as [n, L], each padded by repeating its last number."""
    lengths = np.array([[len(row)] for row in rows])
    starts = lengths.cumsum(0) - lengths
    return np.concatenate(rows)[starts + np.minimum(np.arange(lengths.max()), lengths - 1)]


class PaddedRows:
    """Tokens of several nodes, one row each, padded to the longest."""

    def __init__(self, rows: list[Indices], device: torch.device) -> None:
        # Padding repeats the last token, so by its log-sum-exp no weight exceeds 1.
        padded = torch.from_numpy(pad(rows))
        lengths = torch.tensor([[len(row)] for row in rows])
        real = torch.arange(padded.shape[1]) < lengths
        self.index = padded.to(device)  # [n, L]
        self.tokens = padded[real].to(device)  # without padding
        self.real = real.flatten().nonzero()[:, 0].to(device)  # their indices into n * L
        self.padding = (~real).flatten().nonzero()[:, 0].to(device)

    def take(self, x: Tensor) -> Tensor:
        """Return [n, H, L, D] from x [N, H, D]."""
        return x[self.index].transpose(1, 2)

    def without_padding(self, rows: Tensor) -> Tensor:
        """Return [T, H, D] from rows [n, H, L, D]."""
        return rows.transpose(1, 2).flatten(0, 1)[self.real]

    def add(self, x: Tensor, rows: Tensor) -> None:
        """Add rows [n, H, L, D] to x [N, H, D]."""
        x.index_add_(0, self.tokens, self.without_padding(rows).to(x.dtype))


@dataclass(frozen=True, slots=True)
class Near:
    """Nodes whose queries attend to their own tokens and small ancestors in one call."""

    queries: PaddedRows
    keys: PaddedRows
    mask: Tensor | None  # [n, 1, Q, K], added to the scores; None: causal, keys = queries


@dataclass(frozen=True, slots=True)
class Far:
    """All queries that descend from a large node, and the node's keys."""

    queries: slice
    keys: slice


class CascadeAttention(torch.autograd.Function):
    """Attention [S, H, D] of q [S, H, D] over k, v [N, K, D]. Each query is in one of `near`."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, near: list[Near], far: list[Far], scale: float
    ) -> Tensor:
        """Combine the parts, in at least fp32."""
        out = torch.zeros_like(q, dtype=torch.promote_types(q.dtype, torch.float32))
        lse = out.new_zeros(*q.shape[:2], 1)
        for part in near:
            rows = part.queries.take(q), part.keys.take(k), part.keys.take(v)
            o, sums = _forward(*rows, 0.0, part.mask is None, attn_mask=part.mask, scale=scale)
            part.queries.add(out, o)
            part.queries.add(lse, sums[..., None])
        for part in far:
            rows = _row(q[part.queries]), _row(k[part.keys]), _row(v[part.keys])
            o, sums = (x[0].transpose(0, 1) for x in _forward(*rows, scale=scale))
            sums, so_far = sums[..., None], lse[part.queries]
            out[part.queries].lerp_(o.to(out.dtype), torch.sigmoid(sums - so_far))
            torch.logaddexp(so_far, sums, out=so_far)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.parts = near, far, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        """Sum the parts' gradients."""
        q, k, v, out, lse = ctx.saved_tensors
        near, far, scale = ctx.parts
        dq, dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (q, k, v))
        for part in near:
            of, to, causal = part.queries, part.keys, part.mask is None
            g, qs, o, sums = (of.take(x) for x in (grad, q, out, lse))
            g.transpose(1, 2).flatten(0, 1)[of.padding] = 0
            rows = g, qs, to.take(k), to.take(v), o, sums[..., 0]
            found = _backward(*rows, 0.0, causal, attn_mask=part.mask, scale=scale)
            for place, x, d in zip((of, to, to), (dq, dk, dv), found, strict=True):
                place.add(x, d)
        for part in far:
            of, to = part.queries, part.keys
            rows = (_row(x) for x in (grad[of], q[of], k[to], v[to], out[of]))
            found = _backward(*rows, _row(lse[of])[..., 0], 0.0, False, scale=scale)
            for place, x, d in zip((of, to, to), (dq, dk, dv), found, strict=True):
                x[place] += d[0].transpose(0, 1)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _row(x: Tensor) -> Tensor:
    """Return [1, H, N, D] from [N, H, D]."""
    return x.transpose(0, 1)[None]
