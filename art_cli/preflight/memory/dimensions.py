"""The dimensions of a base, as far as its memory depends on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder's dimensions."""

    num_layers: int
    hidden: int  # H
    intermediate: int  # F
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int  # V
    has_head_norms: bool  # a norm on each query and key head, as Qwen3's
    num_params: int
    num_linear: int  # of them in the layers' linear maps: what is quantized
    linear_sides: int  # inputs and outputs of what is adapted, added up: an adapter of rank 1
    # Of a mixture of experts, where `intermediate` is the mean width of its dense and shared MLPs.
    experts: int = 0  # routed ones of a layer
    experts_per_token: int = 0  # k
    expert_width: int = 0  # I
    num_routed: int = 0  # parameters in all routed experts
    routed_sides: int = 0  # theirs among linear_sides; 0 where they are not adapted

    @property
    def num_active(self) -> int:
        """Parameters that one token is computed with."""
        if not self.experts:
            return self.num_params
        asleep = self.num_routed * (self.experts - self.experts_per_token) // self.experts
        return self.num_params - asleep

    @property
    def mlp_width(self) -> int:
        """F of a dense model; with the experts that one token is sent to."""
        return self.intermediate + self.experts_per_token * self.expert_width

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in bfloat16."""
        return 2 * 2 * self.num_layers * self.kv_heads * self.head_dim
