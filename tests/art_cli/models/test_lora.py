"""LoRA on a linear map: what PEFT's layer computes and what its gradients are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn

from art_cli.models.lora import LoraLinear, use_own_linear


def adapted(bias: bool, dtype: torch.dtype) -> tuple[Any, Any]:
    """Return PEFT's layer and ours, of the same weights."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(24, 40, bias=bias, dtype=dtype))
    theirs: Any = get_peft_model(inner, LoraConfig(r=4, lora_alpha=6, target_modules=["0"]))  # type: ignore[arg-type]
    nn.init.normal_(theirs.base_model.model[0].lora_B["default"].weight)
    ours = copy.deepcopy(theirs)
    use_own_linear(ours)
    layers = theirs.base_model.model[0], ours.base_model.model[0]
    assert [type(layer) for layer in layers] == [Linear, LoraLinear]
    return layers


def results(layer: Any, x: Tensor) -> list[Tensor]:
    """Return the result, and the gradients of x and of the adapter."""
    leaf = x.clone().requires_grad_()
    y = layer(leaf)
    (y.double() * torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)).sum().backward()
    assert all(p.grad is None for p in layer.base_layer.parameters())
    found = (leaf.grad, *(m["default"].weight.grad for m in (layer.lora_A, layer.lora_B)))
    return [y.detach(), *(g for g in found if g is not None)]


def gaps(mine: list[Tensor], true: list[Tensor]) -> list[float]:
    assert len(mine) == len(true) == 4
    return [float((a - b).norm() / b.norm()) for a, b in zip(mine, true, strict=True)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(7, 24), (2, 7, 24)])
def test_it_is_pefts_and_so_are_the_gradients(bias: bool, shape: tuple[int, ...]) -> None:
    theirs, ours = adapted(bias, torch.float32)
    x = torch.randn(2, *shape)[0]
    assert max(gaps(results(ours, x), results(theirs, x))) < 1e-5


def test_in_bfloat16_it_is_as_near_to_the_truth_as_its_type_is() -> None:
    """What is trained stays float32, and so do its gradients; PEFT rounds the results alike."""
    theirs, ours = adapted(True, torch.bfloat16)
    x = torch.randn(7, 24).bfloat16()
    exact = copy.deepcopy(theirs).double()
    true = results(exact, x.double())
    mine = results(ours, x)
    assert [m.dtype for m in mine] == [torch.bfloat16] * 2 + [torch.float32] * 2
    assert max(gaps([m.double() for m in mine], true)) < 1e-2
    assert max(gaps([m.double() for m in results(theirs, x)], true)) > 1e-4


def test_an_adapter_that_is_off_adds_nothing() -> None:
    _, ours = adapted(True, torch.float32)
    x = torch.randn(7, 24)
    ours.enable_adapters(False)
    assert torch.equal(ours(x), ours.base_layer(x))


def test_it_keeps_what_comes_in_once_and_nothing_as_large_as_what_comes_out() -> None:
    _, ours = adapted(True, torch.bfloat16)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    x = torch.randn(1000, 24).bfloat16().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        ours(x)
    of_tokens = [t for t in kept if len(t) == 1000]
    assert sorted(t.shape[1] for t in of_tokens) == [4, 24]
    assert any(t.data_ptr() == x.data_ptr() for t in of_tokens)
