"""LoRA on the routed experts of a layer, computed for the tokens that are routed to each.

PEFT adapts a fused parameter by adding B_e A_e to the weights of all experts before each forward.
Here a token's rank-r product is added to what its experts compute, as in any linear map:

    y = x W_e + scale * (x A_e) B_e        for each expert e that the token is routed to

The wrappers are PEFT's own (`ParamWrapper`), with another forward: names, shapes and files are
PEFT's, and so is the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from peft import PeftModel
from peft.tuners.lora.layer import ParamWrapper
from torch import Tensor, nn

ALIGNED = 8  # columns: a GPU's grouped product reads 16 bytes at a time


def use_own_experts(adapted: PeftModel) -> None:
    """Let PEFT's wrappers of experts compute as this module does."""
    for module in adapted.modules():
        if type(module) is ParamWrapper and not isinstance(module.get_base_layer(), nn.Linear):
            module.__class__ = ExpertLora


def adapts_experts(model: nn.Module) -> bool:
    """Return whether an adapter is on routed experts."""
    return any(isinstance(module, ExpertLora) for module in model.modules())


class ExpertLora(ParamWrapper):
    """LoRA on one fused parameter; the wrapper of the other one may be inside."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return what the experts' own forward does, of tokens [T, H], with the adapter."""
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
    """LoRA's addition to one fused parameter, in the type that the experts compute in."""

    a: Tensor  # [experts * r, in]
    b: Tensor  # [out, r * experts]
    num_experts: int
    scale: float

    @classmethod
    def of(cls, layer: ParamWrapper, dtype: torch.dtype) -> Delta:
        """Return the factors of the layer's adapter."""
        [name] = layer.active_adapters
        a: Any = layer.lora_A[name].weight
        b: Any = layer.lora_B[name].weight
        return cls(a.to(dtype), b.to(dtype), layer.num_experts, layer.scaling[name])

    @property
    def each_a(self) -> Tensor:
        """A [experts, in, r], a view."""
        return self.a.view(self.num_experts, -1, self.a.shape[1]).transpose(1, 2)

    @property
    def each_b(self) -> Tensor:
        """B [experts, r, out], a view."""
        return self.b.view(len(self.b), -1, self.num_experts).permute(2, 1, 0)

    def some_b(self, experts: Tensor) -> Tensor:
        """Return B of some experts; in memory one expert is not in one piece."""
        columns = self.b.view(-1, self.num_experts).index_select(1, experts)
        return columns.view(len(self.b), -1, len(experts)).permute(2, 1, 0)


def delta_weight(layer: Any) -> Tensor:
    """Return what an adapter's layer adds to its parameter, in float32 where that is possible."""
    if not isinstance(layer, ParamWrapper) or layer.get_param().ndim == 2:
        return layer.get_delta_weight(layer.active_adapters[0])
    delta = Delta.of(layer, torch.float32)
    product = torch.bmm(delta.each_a, delta.each_b) * delta.scale
    is_transposed = getattr(layer.get_base_layer(), "is_transposed", False)
    return product if is_transposed else product.transpose(1, 2)


def fits(experts: nn.Module) -> bool:
    """Return whether these are fused experts of the kind that `routed` computes."""
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
    """Return the weighted sum [T, H] of the experts index [T, k] of tokens x [T, H]."""
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
    """Rows in the order of their experts."""

    def __init__(self, chosen: Tensor, like: Tensor) -> None:
        """`chosen` [S] is the expert of each row, ascending; `like` is one of their weights."""
        self.chosen = chosen
        counts = torch.bincount(chosen, minlength=len(like))
        self._ends = counts.cumsum(0).int() if _has_grouped_product(like) else None
        if self._ends is None:
            self._sizes = counts.tolist()
            self._hit = [e for e, n in enumerate(self._sizes) if n]

    def product(self, rows: Tensor, weight: Tensor, delta: Delta | None) -> Tensor:
        """Return each row [S, in] times its expert's matrix, of weight [experts, in, out]."""
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
        """Compute it on a GPU, which is never asked how many rows there are of each."""
        out = F.grouped_mm(rows, weight, offs=ends)
        if delta:
            spare = -delta.each_a.shape[2] % ALIGNED
            a = F.pad(delta.each_a, (0, spare)) if spare else delta.each_a
            b = F.pad(delta.each_b, (0, 0, 0, spare)).contiguous()
            low = F.grouped_mm(rows, a, offs=ends)
            out = out + F.grouped_mm(low, b, offs=ends) * delta.scale
        return out


def _unbound(weight: Tensor) -> Any:
    """Return what [expert] can be asked of. Where it is trained, the experts have one gradient: to
    pick one by its index would make a gradient as large as all of them each time."""
    return weight.unbind() if weight.requires_grad and torch.is_grad_enabled() else weight


def _has_grouped_product(like: Tensor) -> bool:
    if like.device.type != "cuda" or like.dtype != torch.bfloat16:
        return False
    return torch.cuda.get_device_capability(like.device) >= (8, 0)
