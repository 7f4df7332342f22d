"""Fast reading of a single token in each of many rows, for a small model of the Llama family.

For a token of a small model, the overhead of calls exceeds the computation. This forward makes
fewer calls than `hidden_states` by joining matrices that have the same input. The joined matrices
are copies of the weights, made when a cache reads its first single token. When the weights change,
the cache is discarded together with its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from art_cli.models.forward.attention import Layout, Look
from art_cli.models.forward.decoder import signed, window_of

MOST_WEIGHTS = 2_000_000  # elements; in larger models call overhead is negligible
# RoPE types whose angles depend only on a token's position, not on the length of the text.
STATIC_ANGLES = ("default", "linear", "llama3", "yarn")
NUM_ANGLES = 512  # positions, at first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Map:
    """Linear map x @ weight + bias."""

    weight: Tensor  # [I, O]
    bias: Tensor | None  # [O]

    @classmethod
    def of(cls, *linear: Any) -> _Map:
        """Join linear layers that have the same input."""
        biases = [m.bias for m in linear if m.bias is not None]
        weight = torch.cat([m.weight for m in linear]).detach()
        return cls(weight=weight.T, bias=torch.cat(biases).detach() if biases else None)

    def __call__(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return torch.mm(x, self.weight)
        return torch.addmm(self.bias, x, self.weight)

    def added_to(self, y: Tensor, x: Tensor) -> Tensor:
        """Return y + x @ weight + bias."""
        y = torch.addmm(y, x, self.weight)
        return y if self.bias is None else y + self.bias


@dataclass(frozen=True, slots=True, kw_only=True)
class _Norm:
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension (1910.07467)."""

    weight: Tensor
    eps: Tensor  # a number

    @classmethod
    def of(cls, norm: Any, *heads: Tensor) -> _Norm:
        """Copy a norm, with the weights of several heads instead of its own if given."""
        weight = (torch.stack(heads) if heads else norm.weight).detach()
        return cls(weight=weight, eps=weight.new_tensor(norm.variance_epsilon))

    def __call__(self, x: Tensor) -> Tensor:
        squares = (x * x).sum(-1, keepdim=True)
        scale = torch.add(self.eps, squares, alpha=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    before_attention: _Norm
    queries_keys_values: _Map
    of_heads: _Norm | None  # norm of queries and keys
    num_queries: int
    num_keys: int
    look: Look
    after_attention: _Map
    before_mlp: _Norm
    gate_and_up: _Map
    activation: Callable[[Tensor], Tensor]
    down: _Map

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        """Copy the weights of a layer."""
        attention, mlp = layer.self_attn, layer.mlp
        width = attention.head_dim
        queries = attention.q_proj.weight.shape[0] // width
        keys = attention.k_proj.weight.shape[0] // width
        of_heads = None
        if hasattr(attention, "q_norm"):
            each = [attention.q_norm.weight] * queries + [attention.k_norm.weight] * keys
            of_heads = _Norm.of(attention.q_norm, *each)
        return cls(
            before_attention=_Norm.of(layer.input_layernorm),
            queries_keys_values=_Map.of(attention.q_proj, attention.k_proj, attention.v_proj),
            of_heads=of_heads,
            num_queries=queries,
            num_keys=keys,
            look=Look(scale=attention.scaling, window=window_of(attention)),
            after_attention=_Map.of(attention.o_proj),
            before_mlp=_Norm.of(layer.post_attention_layernorm),
            gate_and_up=_Map.of(mlp.gate_proj, mlp.up_proj),
            activation=mlp.act_fn,
            down=_Map.of(mlp.down_proj),
        )

    def __call__(self, i: int, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
        """Return the output [R, D] of this layer, number `i`, for x [R, D]."""
        heads = self.queries_keys_values(self.before_attention(x)).unflatten(
            1, (self.num_queries + 2 * self.num_keys, -1)
        )
        turned = heads[:, : self.num_queries + self.num_keys]
        if self.of_heads:
            turned = self.of_heads(turned)
        turned = torch.addcmul(turned * cos, turned.roll(turned.shape[-1] // 2, -1), sin)
        q, k = turned[:, : self.num_queries, None], turned[:, self.num_queries :, None]
        v = heads[:, self.num_queries + self.num_keys :, None]
        o = layout.attend(i, q, k, v, self.look)
        x = self.after_attention.added_to(x, o.reshape(len(x), -1))
        gate, up = self.gate_and_up(self.before_mlp(x)).chunk(2, -1)
        return self.down.added_to(x, self.activation(gate).mul_(up))


class NextToken:
    """A decoder that reads one token of each row."""

    def __init__(self, decoder: Any) -> None:
        self._embedding = decoder.embed_tokens
        self._rotary = decoder.rotary_emb
        self._layers = [_Layer.of(layer) for layer in decoder.layers]
        self._norm = _Norm.of(decoder.norm)
        self._angles = self._cos_and_sin(NUM_ANGLES)

    def __call__(self, ids: Tensor, positions: Tensor, end: int, layout: Layout) -> Tensor:
        """Return the last hidden states [R, D] of ids [R] at positions [R], all below `end`."""
        x = self._embedding(ids)
        if end > len(self._angles[0]):
            self._angles = self._cos_and_sin(2 * end)
        cos, sin = (a[positions] for a in self._angles)
        for i, layer in enumerate(self._layers):
            x = layer(i, x, cos, sin, layout)
        return self._norm(x)

    def _cos_and_sin(self, num: int) -> tuple[Tensor, Tensor]:
        """Return cosines and sines [num, 1, head width], the sines as by `signed`."""
        positions = torch.arange(num, device=self._norm.weight.device)[None]
        cos, sin = (a[0, :, None] for a in self._rotary(self._norm.weight, positions))
        return cos, signed(sin)


def next_token_of(decoder: Any) -> NextToken | None:
    """Return a `NextToken` of a decoder of the Llama family, or None if it would not be faster."""
    weights = list(decoder.layers.parameters())
    linear = [m for m in decoder.layers.modules() if isinstance(m, nn.Linear)]
    is_small = sum(w.numel() for w in weights) <= MOST_WEIGHTS
    if not (is_small and all(w.dtype == torch.float32 for w in weights)):
        return None
    if len(linear) != 7 * len(decoder.layers):  # it has an adapter
        return None
    return NextToken(decoder) if has_static_angles(decoder) else None


def has_static_angles(decoder: Any) -> bool:
    """Return whether a token's RoPE angles depend only on its position."""
    return getattr(decoder.rotary_emb, "rope_type", "default") in STATIC_ANGLES
