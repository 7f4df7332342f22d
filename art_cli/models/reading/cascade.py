"""Attention over a tree of shared prefixes on a CPU: no key is copied to those who look at it.

Packed in the order of a walk, all that descends from a node is consecutive, and sees all of it: one
call without a mask. Each node also looks at itself, left to right, in calls of several nodes. The
softmax over an ancestor is one over a part of the keys; by their log-sum-exps the parts become
softmax over all ("cascade attention", 2402.05099). With the whole log-sum-exp a part's backward
yields its part of the gradients, so that nothing beside the results is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Rows:
    """Packed tokens of several nodes, a row each, padded to the longest."""

    def __init__(self, rows: list[Sequence[int]], device: torch.device | None = None) -> None:
        longest = max(map(len, rows))
        # Padding is a copy of the last: what a softmax over it makes is never too large.
        padded = [[*r, *[r[-1]] * (longest - len(r))] for r in rows]
        real = torch.arange(longest)[None] < torch.tensor([len(r) for r in rows])[:, None]
        self.index = torch.tensor(padded).to(device)  # [n, L]
        self.real = real.flatten().nonzero()[:, 0].to(device)  # which of the n * L
        self.padding = (~real).flatten().nonzero()[:, 0].to(device)
        self.tokens = self.index.flatten()[self.real]

    def take(self, x: Tensor) -> Tensor:
        """Return [n, H, L, D] of [N, H, D]."""
        return x[self.index].transpose(1, 2)

    def put(self, x: Tensor, rows: Tensor) -> None:
        """Write [n, H, L, D] into [N, H, D]."""
        x[self.tokens] = rows.transpose(1, 2).flatten(0, 1)[self.real]


@dataclass(frozen=True, slots=True)
class Selves:
    """Nodes that look at themselves in one call."""

    queries: Rows
    keys: Rows
    mask: Tensor | None  # [n, 1, Q, K], added to the scores; None: left to right


@dataclass(frozen=True, slots=True)
class Below:
    """What descends from a node, and the node."""

    queries: slice
    keys: slice


class CascadeAttention(torch.autograd.Function):
    """Attention [N, H, D] of q [N, H, D] over k, v [M, K, D]; every query is in one of `selves`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        selves: list[Selves],
        belows: list[Below],
        scale: float,
    ) -> Tensor:
        out = torch.empty_like(q, dtype=torch.promote_types(q.dtype, torch.float32))
        lse = out.new_empty(*q.shape[:2], 1)
        for each in selves:
            qs, ks, vs = each.queries.take(q), each.keys.take(k), each.keys.take(v)
            causal = each.mask is None
            o, l = _forward(qs, ks, vs, 0.0, causal, attn_mask=each.mask, scale=scale)
            each.queries.put(out, o)
            each.queries.put(lse, l[..., None])
        for each in belows:
            qs, ks, vs = (_batch(x) for x in (q[each.queries], k[each.keys], v[each.keys]))
            o, l = (x[0].transpose(0, 1) for x in _forward(qs, ks, vs, scale=scale))
            mine, l = lse[each.queries], l[..., None]
            out[each.queries].lerp_(o.to(out.dtype), (l - mine).sigmoid())
            torch.logaddexp(mine, l, out=mine)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.parts = selves, belows, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, out, lse = ctx.saved_tensors
        selves, belows, scale = ctx.parts
        dq, dk, dv = (torch.zeros_like(x, dtype=lse.dtype) for x in (q, k, v))
        for each in selves:
            of, to = each.queries, each.keys
            g = grad[of.index]
            g.flatten(0, 1)[of.padding] = 0
            parts = (g.transpose(1, 2), of.take(q), to.take(k), to.take(v), of.take(out))
            l = of.take(lse)[..., 0]
            causal = each.mask is None
            more = _backward(*parts, l, 0.0, causal, attn_mask=each.mask, scale=scale)
            for d, rows, x in zip((dq, dk, dv), (of, to, to), more, strict=True):
                rows.put(d, x)
        for each in belows:
            of, to = each.queries, each.keys
            parts = (_batch(x) for x in (grad[of], q[of], k[to], v[to], out[of]))
            more = _backward(*parts, _batch(lse[of])[..., 0], 0.0, False, scale=scale)
            for d, place, x in zip((dq, dk, dv), (of, to, to), more, strict=True):
                d[place] += x[0].transpose(0, 1)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _batch(x: Tensor) -> Tensor:
    """Return [1, H, N, D] of [N, H, D]."""
    return x.transpose(0, 1)[None]
