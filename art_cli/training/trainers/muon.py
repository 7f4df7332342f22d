"""Muon optimizer (kellerjordan.github.io/posts/muon): orthogonalized momentum for matrices.

Equal to torch.optim.Muon up to bf16 rounding. Matrices of one shape are multiplied in one call,
because the call overhead exceeds the arithmetic of a small matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.85
QUINTIC = (3.4445, -4.7750, 2.0315)  # steep at 0, so few iterations suffice
ITERATIONS = 5
EPSILON = 1e-7  # lower bound of a norm
AT_ONCE = 2**24  # elements: batching gains nothing for large matrices and costs memory


class Muon(torch.optim.Optimizer):
    """Moves matrices [M, N] along their orthogonalized momentum, with decoupled weight decay."""

    def __init__(self, matrices: list[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step with the gradients at hand. `closure` is not called."""
        for group in self.param_groups:
            for matrices in _alike([p for p in group["params"] if p.grad is not None]):
                updates = orthogonal([self._momentum(p) for p in matrices])
                for p, update in zip(matrices, updates, strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update, alpha=-group["lr"] * math.sqrt(max(1, p.shape[0] / p.shape[1])))

    def _momentum(self, p: nn.Parameter) -> Tensor:
        """Return the Nesterov momentum, including the present gradient."""
        state: dict[str, Any] = self.state[p]
        assert p.grad is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(p.grad)
        state["momentum_buffer"].lerp_(p.grad, 1 - MOMENTUM)
        return p.grad.lerp(state["momentum_buffer"], MOMENTUM)


def orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """Return about U V' of each matrix U S V', in bf16. All have one shape or its transpose.

    Uses a Newton-Schulz iteration that brings all singular values between 0.5 and 1.5.
    """
    a, b, c = QUINTIC
    tall = [m.shape[0] > m.shape[1] for m in matrices]
    wide = [(m.T if t else m).bfloat16() for m, t in zip(matrices, tall, strict=True)]
    x = torch.stack([m / m.norm().clamp(min=EPSILON) for m in wide])
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return [m.T if t else m for m, t in zip(x, tall, strict=True)]


def _alike(matrices: list[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Yield lists of parameters that share a shape or its transpose, of at most AT_ONCE values."""
    by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
    for p in matrices:
        by_shape.setdefault(tuple(sorted(p.shape)), []).append(p)
    for (rows, columns), alike in by_shape.items():
        size = max(1, AT_ONCE // (rows * columns))
        for i in range(0, len(alike), size):
            yield alike[i : i + size]
