"""RMSNorm and its gradients, against the formula in float64."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from art_cli.models.forward.norm import rms_norm

EPS = 1e-2  # large enough to be seen


def exact(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def results(x: Tensor, weight: Tensor, ours: bool) -> list[Tensor]:
    """Return y and both gradients."""
    leaves = [t.clone().requires_grad_() for t in (x, weight)]
    norm = SimpleNamespace(weight=leaves[1], variance_epsilon=EPS)
    y = rms_norm(norm, leaves[0]) if ours else exact(*leaves)
    (y.double() * torch.linspace(-1, 2, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
    return [y.detach().double(), *(t.grad.double() for t in leaves if t.grad is not None)]


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16), (2, 3, 4, 16)])
def test_result_and_gradients(dtype: torch.dtype, bound: float, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, weight = (3 * torch.randn(shape)).to(dtype), torch.randn(16).to(dtype)
    true = results(x.double(), weight.double(), ours=False)
    for mine, one in zip(results(x, weight, ours=True), true, strict=True):
        assert (mine - one).norm() < bound * one.norm()


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, norm = torch.randn(3, 16, requires_grad=True), SimpleNamespace(variance_epsilon=EPS)
    norm.weight = torch.randn(16)
    rms_norm(norm, x).sum().backward()
    assert x.grad is not None and norm.weight.grad is None
