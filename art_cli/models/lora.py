"""LoRA on linear maps (2106.09685) with less memory traffic than PEFT's.

PEFT computes y + (x A') B' * scale in separate steps and in the adapter's float32. Each step reads
and writes tensors as large as the output, and each map stores a float32 copy of x. Here the second
product is accumulated into y in the base's dtype, and maps with the same input x store it once.
Weights, names and files stay PEFT's.
"""

from __future__ import annotations

from typing import Any

import torch
from peft import PeftModel
from peft.tuners.lora import Linear
from peft.tuners.lora.layer import ParamWrapper
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from art_cli.models.forward.products import OneDnnLinear, product


def use_own_linear(adapted: PeftModel) -> None:
    """Replace the forward of PEFT's layers of plain linear maps by that of this module."""
    for module in adapted.modules():
        if type(module) is Linear and type(module.get_base_layer()) in (nn.Linear, OneDnnLinear):
            module.__class__ = LoraLinear
        elif type(module) is ParamWrapper and isinstance(module.get_base_layer(), nn.Linear):
            module.__class__ = LoraByWeight


class LoraLinear(Linear):
    """LoRA on a linear map."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the output [..., O] of the map and its adapter for x [..., I]."""
        return _adapted(self, x)


class LoraByWeight(ParamWrapper):
    """LoRA on a linear map that PEFT addresses by its weight (see adapter.py)."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the output [..., O] of the map and its adapter for x [..., I]."""
        return _adapted(self, x)


def _adapted(layer: Any, x: Tensor) -> Tensor:
    if layer.disable_adapters:
        return layer.base_layer(x)
    [name] = layer.active_adapters
    base: Any = layer.get_base_layer()
    a, b = (pair[name].weight.to(x.dtype) for pair in (layer.lora_A, layer.lora_B))
    y: Tensor = _Product.apply(x, base.weight, base.bias, a, b, layer.scaling[name])  # type: ignore[no-untyped-call]
    return y


class _Product(torch.autograd.Function):
    """x W' + bias + scale * (x A') B' with its gradients; W and the bias are frozen."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        y = product(x, weight, bias)
        low = x.flatten(0, -2) @ a.T
        y.view(-1, y.shape[-1]).addmm_(low, b.T, alpha=scale)
        ctx.save_for_backward(x, weight, a, b, low)
        ctx.scale = scale
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, a, b, low = ctx.saved_tensors
        rows = grad.flatten(0, -2)
        high = (rows @ b).mul_(ctx.scale)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = product(rows, weight.T).addmm_(high, a).view_as(x)
        of_a = high.T @ x.flatten(0, -2)
        of_b = (rows.T @ low).mul_(ctx.scale)
        return of_x, None, None, of_a, of_b, None
