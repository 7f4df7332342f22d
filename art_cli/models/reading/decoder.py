"""The forward of the Llama family (Llama, Qwen2.5, Qwen3, Mistral) without what is between parts.

transformers' own forward makes masks, collects outputs and converts configs around every layer: for
a token of a small model that is most of the time. Here the model's own modules are called in the
same order, an adapter's too (but norms, which torch has as one function); `Policy` compares the
result with transformers' and takes that for any other family.

In the last layer only the states that are asked for are finished: a prompt's tokens are needed for
their keys and values, but nobody reads what they predict.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from art_cli.models.reading.attention import Layout

NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm")


def fits(decoder: Any) -> bool:
    """Return whether this is a model of the family."""
    try:
        layer = decoder.layers[0]
        attention = layer.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj, layer.mlp)
        norms = (layer.input_layernorm, layer.post_attention_layernorm, decoder.norm)
    except AttributeError:
        return False
    return len(parts) == 5 and all(type(n).__name__ in NORMS for n in norms)


def hidden_states(
    decoder: Any,
    ids: Tensor,
    positions: Tensor,
    layout: Layout,
    wanted: Tensor | None,
    recompute: bool = False,
) -> Tensor:
    """Return the last hidden states [B, T, D] of ids [B, T].

    With `wanted` [S], those of a batch of one at these places: [S, D]. With `recompute`, a layer
    keeps its input alone and is run again in the backward.
    """
    x = decoder.embed_tokens(ids)
    cos, sin = decoder.rotary_emb(x, positions)
    cos, sin = cos[:, None], _signed(sin)[:, None]
    last = len(decoder.layers) - 1
    for i, layer in enumerate(decoder.layers):
        chosen = wanted if i == last else None
        if recompute:
            x = checkpoint(_layer, i, layer, x, cos, sin, layout, chosen, use_reentrant=False)
        else:
            x = _layer(i, layer, x, cos, sin, layout, chosen)
    return _norm(decoder.norm, x)


def decode(decoder: Any, ids: Tensor, positions: Tensor, layout: Layout, recompute: bool) -> Tensor:
    """Return the last hidden states [B, T, D] by transformers' own forward, of any family."""
    for layer in decoder.layers:  # a GradientCheckpointingLayer asks these three
        layer.gradient_checkpointing = layer.training = recompute  # what is in it stays in eval
        layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
    out = decoder(input_ids=ids, position_ids=positions, use_cache=False, layout=layout)
    return out.last_hidden_state


def _layer(
    i: int, layer: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, wanted: Tensor | None
) -> Tensor:
    attention, shape = layer.self_attn, (*x.shape[:2], -1, layer.self_attn.head_dim)
    h = _norm(layer.input_layernorm, x)
    k, v = attention.k_proj(h).view(shape), attention.v_proj(h).view(shape).transpose(1, 2)
    q = attention.q_proj(h).view(shape)
    if hasattr(attention, "q_norm"):
        q, k = _norm(attention.q_norm, q), _norm(attention.k_norm, k)
    q, k = _rotate(q.transpose(1, 2), cos, sin), _rotate(k.transpose(1, 2), cos, sin)
    o = layout.attend(i, q, k, v, attention.scaling).flatten(2)
    if wanted is not None:
        o, x = o[0, wanted], x[0, wanted]
    x = x + attention.o_proj(o)
    return x + layer.mlp(_norm(layer.post_attention_layernorm, x))


def _norm(norm: Any, x: Tensor) -> Tensor:
    """Compute one of NORMS in one call instead of six."""
    weight = norm.weight
    return F.rms_norm(x.float(), weight.shape, None, norm.variance_epsilon).to(x.dtype) * weight


def _signed(sin: Tensor) -> Tensor:
    """Negate the first half: rotating swaps the halves and negates the first."""
    half = sin.shape[-1] // 2
    return torch.cat([-sin[..., :half], sin[..., half:]], -1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
