"""LoRA on the routed experts of a layer, computed only for the tokens of each expert.

PEFT adapts a fused parameter by adding B_e A_e to the weights of all experts before each forward.
Here a token's rank-r product is added to the output of its experts, as in any linear map:

    y = x W_e + scale * (x A_e) B_e        for each expert e that the token is routed to

The wrappers are PEFT's own (`ParamWrapper`) with another forward. Names, shapes, files and the
result are PEFT's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from peft.tuners.lora.layer import ParamWrapper
from torch import Tensor, nn

ALIGNED = 8  # columns; a GPU's grouped product reads 16 bytes at a time


def use_own_experts(adapted: PeftModel) -> None:
    """Replace the forward of PEFT's expert wrappers by that of this module."""
    for module in adapted.modules():
        if type(module) is ParamWrapper and not isinstance(module.get_base_layer(), nn.Linear):
            module.__class__ = ExpertLora


def adapts_experts(model: nn.Module) -> bool:
    """Return whether the model has an adapter on routed experts."""
    return any(isinstance(module, ExpertLora) for module in model.modules())


class ExpertLora(ParamWrapper):
    """LoRA on one fused parameter. The wrapper of the other parameter may be nested inside."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the experts' output for tokens [T, H], adapter included."""
        index, weights = args
        if self.disable_adapters:
            return self.get_base_layer()(x, index, weights)
        layer: Any = self
        deltas = {}
        while isinstance(layer, ParamWrapper):
            deltas[layer.parameter_name] = Delta.of(layer, x.dtype)
            layer = layer.base_layer
        return routed(layer, x, index, weights, deltas)


@dataclass(frozen=True, slots=True)
class Delta:
    """The low-rank addition to one fused parameter, in the dtype of the experts."""

    a: Tensor  # [experts * r, in]
    b: Tensor  # [out, r * experts]
    num_experts: int
    scale: float

    @classmethod
    def of(cls, layer: ParamWrapper, dtype: torch.dtype) -> Delta:
        """Return the factors of the layer's active adapter."""
        [name] = layer.active_adapters
        a: Any = layer.lora_A[name].weight
        b: Any = layer.lora_B[name].weight
        return cls(a.to(dtype), b.to(dtype), layer.num_experts, layer.scaling[name])

    @property
    def each_a(self) -> Tensor:
        """A, shape [experts, in, r], as a view."""
        return self.a.view(self.num_experts, -1, self.a.shape[1]).transpose(1, 2)

    @property
    def each_b(self) -> Tensor:
        """B, shape [experts, r, out], as a view."""
        return self.b.view(len(self.b), -1, self.num_experts).permute(2, 1, 0)

    def some_b(self, experts: Tensor) -> Tensor:
        """Return a copy of some experts' B, which is not contiguous in memory for one expert."""
        columns = self.b.view(-1, self.num_experts).index_select(1, experts)
        return columns.view(len(self.b), -1, len(experts)).permute(2, 1, 0)


def delta_weight(layer: Any) -> Tensor:
    """Return the addition of an adapter layer to its parameter, in float32 if possible."""
    if not isinstance(layer, ParamWrapper) or layer.get_param().ndim == 2:
        return layer.get_delta_weight(layer.active_adapters[0])
    delta = Delta.of(layer, torch.float32)
    product = torch.bmm(delta.each_a, delta.each_b) * delta.scale
    is_transposed = getattr(layer.get_base_layer(), "is_transposed", False)
    return product if is_transposed else product.transpose(1, 2)


def fits(experts: nn.Module) -> bool:
    """Return whether these are fused experts that `routed` computes correctly."""
    expected = ("has_gate", "has_bias", "is_transposed", "_apply_gate", "down_proj")
    if not all(hasattr(experts, name) for name in expected):
        return False
    weights = [p for p in experts.parameters(recurse=False) if p.ndim == 3]
    if any(not w.is_floating_point() for w in weights):
        return False
    return weights[0].is_meta or _same_result(experts)


@torch.no_grad()
def _same_result(experts: Any) -> bool:
    """Compare with the family's own forward on a few tokens."""
    weight = experts.down_proj
    num, hidden = weight.shape[0], weight.shape[2 if experts.is_transposed else 1]
    at = torch.arange(4 * hidden, device=weight.device)
    x = (at * 0.7).sin().view(4, hidden).to(weight.dtype)
    index = torch.arange(8, device=weight.device).view(4, 2) * 5 % num
    weights = torch.full((4, 2), 0.5, device=weight.device, dtype=weight.dtype)
    theirs = experts(x, index, weights).float()
    mine = routed(experts, x, index, weights, {}).float()
    bound = 1e-4 if weight.dtype == torch.float32 else 2e-2
    return torch.allclose(mine, theirs, rtol=bound, atol=bound * float(theirs.abs().max()))


def routed(
    experts: Any, x: Tensor, index: Tensor, weights: Tensor, deltas: dict[str, Delta]
) -> Tensor:
    """Return the weighted sum [T, H] of the outputs of experts index [T, k] for tokens x [T, H]."""
    chosen, order = index.reshape(-1).sort(stable=True)
    groups = _Groups(chosen, experts.down_proj)
    rows = x[order // index.shape[-1]]
    if experts.has_gate:
        rows = experts._apply_gate(_map(experts, "gate_up_proj", rows, groups, deltas))
    else:
        rows = experts.act_fn(_map(experts, "up_proj", rows, groups, deltas))
    rows = _map(experts, "down_proj", rows, groups, deltas)
    rows = rows * weights.reshape(-1)[order, None]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return rows[back].view(*index.shape, -1).sum(1).to(x.dtype)


def _map(
    experts: Any, name: str, rows: Tensor, groups: _Groups, deltas: dict[str, Delta]
) -> Tensor:
    weight = getattr(experts, name)
    weight = weight if experts.is_transposed else weight.transpose(1, 2)
    out = groups.product(rows, weight, deltas.get(name))
    if experts.has_bias:
        out = out + getattr(experts, f"{name}_bias")[groups.chosen]
    return out


class _Groups:
    """Rows sorted by expert."""

    def __init__(self, chosen: Tensor, like: Tensor) -> None:
        """`chosen` [S] is the expert of each row, ascending; `like` is one of the weights."""
        self.chosen = chosen
        counts = torch.bincount(chosen, minlength=len(like))
        self._ends = counts.cumsum(0).int() if _has_grouped_product(like) else None
        if self._ends is None:
            self._sizes = counts.tolist()
            self._hit = [e for e, n in enumerate(self._sizes) if n]

    def product(self, rows: Tensor, weight: Tensor, delta: Delta | None) -> Tensor:
        """Return each row [S, in] times its expert's matrix, from weight [experts, in, out]."""
        if self._ends is not None:
            return self._at_once(rows, weight, delta, self._ends)
        parts = rows.split([self._sizes[e] for e in self._hit])
        each = _unbound(weight)
        outs = [part @ each[e] for part, e in zip(parts, self._hit, strict=True)]
        if delta:
            each_a = _unbound(delta.each_a)
            each_b = delta.some_b(torch.tensor(self._hit, device=rows.device)).unbind()
            outs = [
                torch.addmm(out, part @ each_a[e], b, alpha=delta.scale)
                for out, part, e, b in zip(outs, parts, self._hit, each_b, strict=True)
            ]
        return torch.cat(outs)

    @staticmethod
    def _at_once(rows: Tensor, weight: Tensor, delta: Delta | None, ends: Tensor) -> Tensor:
        """Compute the product in one GPU call, without reading the row counts back to the CPU."""
        out = F.grouped_mm(rows, weight, offs=ends)
        if delta:
            spare = -delta.each_a.shape[2] % ALIGNED
            a = F.pad(delta.each_a, (0, spare)) if spare else delta.each_a
            b = F.pad(delta.each_b, (0, 0, 0, spare)).contiguous()
            low = F.grouped_mm(rows, a, offs=ends)
            out = out + F.grouped_mm(low, b, offs=ends) * delta.scale
        return out


def _unbound(weight: Tensor) -> Any:
    """Return the matrices of the experts, indexable by expert.

    A trained weight is unbound once. Indexing it would create a full-size gradient for each expert.
    """
    return weight.unbind() if weight.requires_grad and torch.is_grad_enabled() else weight


def _has_grouped_product(like: Tensor) -> bool:
    if like.device.type != "cuda" or like.dtype != torch.bfloat16:
        return False
    return torch.cuda.get_device_capability(like.device) >= (8, 0)
