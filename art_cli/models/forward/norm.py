"""RMSNorm (1910.07467) with its own backward, which stores the input without a copy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def rms_norm(norm: Any, x: Tensor) -> Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight over the last dimension, like the model's norm.

    It is computed in fp32 and returned in the dtype of x.
    """
    y: Tensor = _RMSNorm.apply(x, norm.weight, norm.variance_epsilon)  # type: ignore[no-untyped-call]
    return y


class _RMSNorm(torch.autograd.Function):
    """With scale = 1 / sqrt(mean(x^2) + eps), and y = x * scale * weight:

    dx = scale * (dy * weight - x * scale^2 * mean(dy * x * weight)).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        if x.is_cuda:
            y, scale = torch.ops.aten._fused_rms_norm(x, weight.shape, weight, eps)
        else:
            wide = x.float()
            scale = wide.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
            y = (wide * scale).to(x.dtype).mul_(weight)
        ctx.save_for_backward(x, weight, scale)
        return y  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, scale = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:2])
        if x.is_cuda:
            found = torch.ops.aten._fused_rms_norm_backward(
                grad.contiguous(), x, weight.shape, scale, weight, wanted
            )
            return *found, None
        of_x = of_weight = None
        products = grad * x.float()
        if wanted[1]:
            of_weight = (scale.flatten() @ products.flatten(0, -2)).to(weight.dtype)
        if wanted[0]:
            along = (products @ weight.float())[..., None] * scale.square()
            g = grad * weight.float()
            of_x = g.addcmul_(x, along, value=-1 / len(weight)).mul_(scale).to(x.dtype)
        return of_x, of_weight, None
