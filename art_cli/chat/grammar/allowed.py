"""Masks of allowed tokens, as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


def unpacked(bits: Tensor, size: int) -> Tensor:
    """Unpack masks [R, W] int32, one bit per token, to booleans [R, size]."""
    if bits.device.type == "cpu":  # much faster
        data = bits.contiguous().view(torch.uint8).numpy()
        each = np.unpackbits(data, axis=1, bitorder="little")
        return torch.from_numpy(each).view(torch.bool)[:, :size]
    powers = 2 ** torch.arange(8, dtype=torch.uint8, device=bits.device)
    each = bits.view(torch.uint8)[:, :, None] & powers
    return each.ne(0).flatten(1)[:, :size]


def has(bits: Tensor, ids: Tensor) -> Tensor:
    """Return whether the mask [R, W] of each row allows the row's token [R]."""
    words = bits.gather(1, (ids // 32)[:, None])[:, 0]
    return (words >> (ids % 32).int() & 1).bool()


def is_forced(bits: Tensor) -> Tensor:
    """Return the rows [R] in which only one token is allowed."""
    return _counts(bits) == 1


def _counts(bits: Tensor) -> Tensor:
    """Return the number of allowed tokens per row [R]."""
    x = bits.view(torch.uint8)
    x = (x & 0x55) + (x >> 1 & 0x55)
    x = (x & 0x33) + (x >> 2 & 0x33)
    return ((x & 0x0F) + (x >> 4)).sum(1, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The allowed tokens at those of a list of predictions that a grammar constrained."""

    which: Tensor  # [K] indices of the predictions, ascending
    mask: Tensor  # [K] each one's row in `bits`
    bits: Tensor  # [U, W] int32, the distinct masks

    def to(self, device: torch.device) -> Allowed:
        """Return a copy on a device."""
        return Allowed(self.which.to(device), self.mask.to(device), self.bits.to(device))

    def restrict(self, logits: Tensor, rows: slice) -> None:
        """Set disallowed tokens to -inf in logits [S, V], which are the predictions `rows`."""
        ends = torch.tensor([rows.start, rows.stop], device=self.which.device)
        first, last = torch.searchsorted(self.which, ends).tolist()
        if first == last:
            return
        at = self.which[first:last] - rows.start
        allowed = unpacked(self.bits[self.mask[first:last]], logits.shape[1])
        logits[at] = logits[at].masked_fill_(~allowed, -torch.inf)
