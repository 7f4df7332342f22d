"""Attention over a tree of shared prefixes on a GPU in one kernel (FlexAttention, 2412.05496).

A token attends to its ancestors and itself. In pre-order, the descendants of a node are
consecutive, so two comparisons decide whether one node descends from another. Keys are not copied,
no mask is stored, and fully masked blocks are skipped.
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

BLOCK = 128  # tokens; edge of the query-key blocks that the kernel skips or computes
AGREEMENT = {torch.float32: 2e-2, torch.bfloat16: 5e-2, torch.float16: 2e-2}  # TF32 is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A node as a range of consecutive packed tokens. Lists of spans are in pre-order."""

    first: int  # packed index
    num: int  # tokens
    parent: int | None  # index in the list
    start: int  # position of its first token on the path


def ends_of(spans: list[Span]) -> list[int]:
    """Return for each span the index after its last descendant."""
    ends = list(range(1, len(spans) + 1))
    for i in reversed(range(len(spans))):
        parent = spans[i].parent
        if parent is not None:
            ends[parent] = max(ends[parent], ends[i])
    return ends


class TreeMask:
    """The mask among packed tokens [N]: each sees its ancestors, up to `window` tokens back."""

    def __init__(self, spans: list[Span], window: int | None = None) -> None:
        self._spans = spans
        self._window = window
        self._block_mask: BlockMask | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Return [1, N, H, D] from q [1, H, N, D], k and v [1, K, N, D]."""
        if self._block_mask is None:
            self._block_mask = self.block_mask(q.device)
        grouped = q.shape[1] != k.shape[1]
        o: Any = _compiled()(q, k, v, block_mask=self._block_mask, scale=scale, enable_gqa=grouped)
        return o.transpose(1, 2)

    def block_mask(self, device: torch.device) -> BlockMask:
        """Return the mask in the kernel's format."""
        seen = self.seen_in_blocks()
        # With a window, the kernel must evaluate the mask in every block that is not empty.
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
        """The number of packed tokens, N."""
        return sum(s.num for s in self._spans)

    def sees(self, device: torch.device) -> Callable[..., Tensor]:
        """Return FlexAttention's `mask_mod`, which is True if a query sees a key."""
        size = -(-self.num_tokens // BLOCK) * BLOCK  # the kernel also reads past the last token
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
        """Return the number of visible (query, key) pairs in each block, ignoring the window.

        The shape is [N / BLOCK, N / BLOCK], rounded up. Only "none" and "all" are exact.
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
            seen.diagonal().add_((mine > 0).long())  # a triangle: some pairs, never all
            ancestor = span.parent
            while ancestor is not None:
                seen += torch.outer(mine, overlaps[ancestor])
                ancestor = self._spans[ancestor].parent
        return seen


def _indices(blocks: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return FlexAttention's sparse form: the number of blocks per row, and their indices first."""
    num = blocks.sum(-1, dtype=torch.int32)
    order = blocks.int().argsort(dim=-1, descending=True, stable=True).int()
    return num[None, None].to(device), order[None, None].to(device)


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=True)


@lru_cache(maxsize=16)
def works(heads: int, kv_heads: int, width: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether the kernel compiles here and is correct, tested once on a small tree."""
    spans = [
        Span(first=0, num=150, parent=None, start=0),
        Span(first=150, num=90, parent=0, start=150),
        Span(first=240, num=60, parent=0, start=150),
    ]
    try:
        worst = _error(TreeMask(spans), heads, kv_heads, width, dtype, device)
    except Exception as e:  # compiler, Triton or driver errors all mean that it does not work
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
    """Return the largest relative difference to plain attention in the output and all gradients."""
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
