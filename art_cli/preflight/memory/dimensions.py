"""Dimensions of a base that determine its memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The dimensions of a decoder."""

    num_layers: int
    hidden: int  # H
    intermediate: int  # F
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int  # V
    has_head_norms: bool  # a norm on each query and key head, like in Qwen3
    num_params: int
    num_linear: int  # parameters in the layers' linear maps, which may be quantized
    linear_sides: int  # inputs plus outputs of adapted maps: parameters of an adapter of rank 1
    # For a mixture of experts. `intermediate` is then the mean width of its dense and shared MLPs.
    experts: int = 0  # routed experts per layer
    experts_per_token: int = 0  # k
    expert_width: int = 0  # I
    num_routed: int = 0  # parameters in all routed experts
    routed_sides: int = 0  # their part of linear_sides; 0 if they are not adapted

    @property
    def num_active(self) -> int:
        """The number of parameters used for one token."""
        if not self.experts:
            return self.num_params
        asleep = self.num_routed * (self.experts - self.experts_per_token) // self.experts
        return self.num_params - asleep

    @property
    def mlp_width(self) -> int:
        """The MLP width for one token: F, plus the widths of its routed experts."""
        return self.intermediate + self.experts_per_token * self.expert_width

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values of one token, in bfloat16."""
        return 2 * 2 * self.num_layers * self.kv_heads * self.head_dim
