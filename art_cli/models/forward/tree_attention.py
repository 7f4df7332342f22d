"""Attention over a tree of shared prefixes on a GPU: one fused kernel (FlexAttention, 2412.05496).

A token looks at its ancestors and itself. Numbered in the order of a walk through the tree, the
descendants of a node are consecutive: whether one node descends from another is two comparisons.
No key is copied and no mask is stored; blocks where nobody looks are skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

BLOCK = 128  # tokens; the kernel skips or runs blocks of so many queries and keys
AGREEMENT = {torch.float32: 2e-2, torch.bfloat16: 5e-2, torch.float16: 2e-2}  # TF32 is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One node: consecutive packed tokens. A list of them is in the order of the walk."""

    first: int  # packed index
    num: int  # tokens
    parent: int | None  # its place in the list
    start: int  # position of its first token on the path


def ends_of(spans: list[Span]) -> list[int]:
    """Return the place behind the last descendant of each."""
    ends = list(range(1, len(spans) + 1))
    for i in reversed(range(len(spans))):
        parent = spans[i].parent
        if parent is not None:
            ends[parent] = max(ends[parent], ends[i])
    return ends


class TreeMask:
    """The mask among packed tokens [N]: each looks at its ancestors, the last `window` tokens of
    them.
    """

    def __init__(self, spans: list[Span], window: int | None = None) -> None:
        self._spans = spans
        self._window = window
        self._block_mask: BlockMask | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return [1, N, H, D] of q [1, H, N, D], k and v [1, K, N, D]."""
        if self._block_mask is None:
            self._block_mask = self.block_mask(q.device)
        grouped = q.shape[1] != k.shape[1]
        o: Any = _compiled()(q, k, v, block_mask=self._block_mask, scale=scale, enable_gqa=grouped)
        return o.transpose(1, 2)

    def block_mask(self, device: torch.device) -> BlockMask:
        """Return the mask as the kernel reads it."""
        seen = self.seen_in_blocks()
        # With a window it is the kernel that asks of each pair.
        full = (seen == BLOCK * BLOCK) & (self._window is None)
        partial = (seen > 0) & ~full
        total = self.num_tokens
        return BlockMask.from_kv_blocks(
            *_indices(partial, device),
            *_indices(full, device),
            BLOCK_SIZE=BLOCK,
            mask_mod=self.sees(device),
            seq_lengths=(total, total),
        )

    @property
    def num_tokens(self) -> int:
        """Packed tokens, N."""
        return sum(s.num for s in self._spans)

    def sees(self, device: torch.device) -> Callable[..., Tensor]:
        """True if the token at a packed index looks at another: FlexAttention's `mask_mod`."""
        size = -(-self.num_tokens // BLOCK) * BLOCK  # the kernel asks beyond the last token too
        walk = torch.full((3, size), -1, dtype=torch.int32)
        ends = ends_of(self._spans)
        for i, span in enumerate(self._spans):
            rows = slice(span.first, span.first + span.num)
            walk[0, rows], walk[1, rows] = i, ends[i]
            walk[2, rows] = torch.arange(span.start, span.start + span.num, dtype=torch.int32)
        enter, leave, position = walk.to(device)
        window = self._window

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
            descends = (enter[kv] <= enter[q]) & (enter[q] < leave[kv])
            seen = descends & (position[kv] <= position[q])
            return seen if window is None else seen & (position[kv] > position[q] - window)

        return mask_mod

    def seen_in_blocks(self) -> Tensor:
        """Return how many pairs of each block of queries and keys see each other.

        [N / BLOCK, N / BLOCK], at least; exact where it is none or all. A window is not counted.
        """
        num_blocks = -(-self.num_tokens // BLOCK)
        edges = torch.arange(num_blocks) * BLOCK

        def overlap(span: Span) -> Tensor:
            last = (span.first + span.num - edges).clamp(0, BLOCK)
            return (last - (span.first - edges).clamp(0, BLOCK)).clamp(min=0)

        overlaps = [overlap(span) for span in self._spans]
        below = torch.ones(num_blocks, num_blocks, dtype=torch.long).tril(-1)
        seen = torch.zeros(num_blocks, num_blocks, dtype=torch.long)
        for span, mine in zip(self._spans, overlaps, strict=True):
            seen += torch.outer(mine, mine) * below
            seen.diagonal().add_((mine > 0).long())  # a triangle: some, and never all
            ancestor = span.parent
            while ancestor is not None:
                seen += torch.outer(mine, overlaps[ancestor])
                ancestor = self._spans[ancestor].parent
        return seen


def _indices(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return FlexAttention's sparse form: how many blocks a row has, and which, those first."""
    num = blocks.sum(-1, dtype=torch.int32)
    order = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return num[None, None].to(device), order[None, None].to(device)


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True)


@lru_cache(maxsize=16)
def works(heads: int, kv_heads: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernel can be built here and is right: tried once on a small tree."""
    spans = [
        Span(first=0, num=150, parent=None, start=0),
        Span(first=150, num=90, parent=0, start=150),
        Span(first=240, num=60, parent=0, start=150),
    ]
    try:
        worst = _error(TreeMask(spans), heads, kv_heads, width, dtype, device)
    except Exception as e:  # the compiler's, Triton's, the driver's: any of them means no
        warnings.warn(f"no fused attention over shared prefixes: {e}", stacklevel=2)
        return False
    if worst > AGREEMENT[dtype]:
        warnings.warn(f"fused attention is off by {worst:.2g} here; not used", stacklevel=2)
        return False
    return True


def _error(
    tree: TreeMask,
    heads: int,
    kv_heads: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
) -> float:
    """The largest relative difference to plain attention, of the result and all gradients."""
    num = tree.num_tokens
    generator = torch.Generator(device).manual_seed(0)
    with torch.enable_grad():
        made = [
            torch.randn(1, n, num, width, generator=generator, device=device).to(dtype)
            for n in (heads, kv_heads, kv_heads)
        ]
        index = torch.arange(num, device=device)
        none = torch.zeros((), dtype=torch.int32, device=device)
        mask = tree.sees(device)(none, none, index[:, None], index[None])
        results = []
        for fused in (True, False):
            q, k, v = leaves = [x.clone().requires_grad_() for x in made]
            if fused:
                o = tree.attend(q, k, v, width**-0.5)
            else:
                group = heads // kv_heads
                k, v = (x.repeat_interleave(group, 1).float() for x in (k, v))
                o = F.scaled_dot_product_attention(q.float(), k, v, mask).transpose(1, 2)
            weights = torch.linspace(-1, 1, o.numel(), device=device).view_as(o)
            (o.float() * weights).sum().backward()
            results.append([o.detach().float(), *(x.grad.float() for x in leaves)])  # type: ignore[union-attr]
    pairs = zip(*results, strict=True)
    return max(float((a - b).norm() / b.norm()) for a, b in pairs)
