"""Faster matrix products on AMD CPUs with AVX-512.

torch multiplies fp32 matrices with MKL, which uses only AVX2 on CPUs that are not Intel's. oneDNN,
which torch includes, uses AVX-512 and is up to twice as fast (`python scripts/bench/products.py`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SMALLEST_WEIGHT = 2**18  # elements; for smaller weights, creating a kernel for the shape costs more
FEWEST_ROWS = 2  # a single row is bound by memory bandwidth anyway


class OneDnnLinear(nn.Linear):
    """nn.Linear that uses oneDNN when that is faster."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias, [..., O] from x [..., I]."""
        return product(x, self.weight, self.bias)


def use_quickest(model: nn.Module) -> None:
    """Make the linear layers of a model use the fastest matrix product on this machine."""
    if is_worth_it():
        for module in model.modules():
            if type(module) is nn.Linear and module.weight.numel() >= SMALLEST_WEIGHT:
                module.__class__ = OneDnnLinear


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x @ weight.T + bias, [..., O] from x [..., I], weight [O, I] and bias [O]."""
    if not _is_quicker(x, weight):
        return F.linear(x, weight, bias)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        y: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    else:
        y = _by_onednn(x, weight)
    return y if bias is None else y + bias


@cache
def is_worth_it() -> bool:
    """Return whether torch's default matrix products are slow on this CPU."""
    cpu = torch.cpu.get_capabilities()
    is_amd = str(cpu.get("cpu_name", "")).startswith("AMD")
    return is_amd and bool(cpu.get("avx512_f")) and torch.backends.mkldnn.is_available()


def _is_quicker(x: Tensor, weight: Tensor) -> bool:
    return (
        is_worth_it()
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and weight.numel() >= SMALLEST_WEIGHT
        and x.numel() >= FEWEST_ROWS * x.shape[-1]
    )


class _Product(torch.autograd.Function):
    """x @ weight.T with its gradients, computed by oneDNN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        return _by_onednn(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        of_x, of_weight = ctx.needs_input_grad
        rows = grad.flatten(0, -2)
        return (
            _by_onednn(grad, weight.T) if of_x else None,
            _by_onednn(rows.T, x.flatten(0, -2).T) if of_weight else None,
        )


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight.T. Both may be transposed views."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")  # type: ignore[no-any-return]
