"""Fast forward pass of the Llama family (Llama, Qwen2.5, Qwen3, Mistral).

transformers' own forward creates masks, collects outputs and converts configs around every layer,
which takes most of the time for a token of a small model. Here the model's own modules, adapters
included, are called in the same order; only norms are replaced by one fused call. `Policy` compares
the result with transformers' and falls back to transformers for any other family.

The last layer computes only the requested states: a prompt's tokens are needed for their keys and
values, but not for their predictions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from art_cli.models.forward.attention import Layout, Look
from art_cli.models.forward.norm import rms_norm
from art_cli.models.forward.token_tree import TreeLayout

NORMS = ("LlamaRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm", "MistralRMSNorm")


def decoder_of(model: Any) -> Any:
    """Return the text decoder: from ids to hidden states, without head or vision tower."""
    decoder = model.get_decoder()
    # Llama 4's get_decoder() returns the whole language model.
    return decoder.model if decoder.get_output_embeddings() is not None else decoder


def fits(decoder: Any) -> bool:
    """Return whether the decoder belongs to the Llama family."""
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

    With `wanted` [S] and B = 1, return only the states at these indices: [S, D]. With `recompute`,
    a layer stores only its input and is run again in the backward pass.
    """
    x = decoder.embed_tokens(ids)
    cos, sin = decoder.rotary_emb(x, positions)
    cos, sin = cos[:, None], signed(sin)[:, None]
    last = len(decoder.layers) - 1
    for i, layer in enumerate(decoder.layers):
        chosen = wanted if i == last else None
        if recompute:
            x = checkpoint(_layer, i, layer, x, cos, sin, layout, chosen, use_reentrant=False)
        else:
            x = _layer(i, layer, x, cos, sin, layout, chosen)
    return rms_norm(decoder.norm, x)


def decode(
    decoder: Any,
    ids: Tensor,
    positions: Tensor,
    layout: Layout | None,
    past: Cache | None = None,
    recompute: bool = False,
) -> Tensor:
    """Return the last hidden states [B, T, D] by transformers' own forward, for any family.

    `layout` is for our attention function. Without it, the model's own masks apply.
    """
    given: dict[str, Any] = {} if layout is None else {"layout": layout}
    if _takes_positions(type(decoder)):
        given["position_ids"] = positions
    if past is not None:
        given[_cache_argument(type(decoder))] = past
    with _recomputing(decoder) if recompute else nullcontext():
        out = decoder(input_ids=ids, use_cache=past is not None, **given)
    return out.last_hidden_state


@lru_cache
def _takes_positions(kind: type[nn.Module]) -> bool:
    return "position_ids" in inspect.signature(kind.forward).parameters


@lru_cache
def _cache_argument(kind: type[nn.Module]) -> str:
    """Return the parameter name of the cache in a decoder's forward, which differs in Mamba."""
    known = inspect.signature(kind.forward).parameters
    return "cache_params" if "cache_params" in known else "past_key_values"


@contextmanager
def _recomputing(decoder: nn.Module) -> Iterator[None]:
    """Let each layer of a forward inside this context store only its input and recompute the rest.

    A layer does so only while `training` is true, which its dropout must not see.
    """
    layers = [m for m in decoder.modules() if isinstance(m, GradientCheckpointingLayer)]

    def run(layer: nn.Module, function: Callable[..., Any], *args: Any) -> Any:
        def body(*args: Any) -> Any:
            layer.training = False
            return function(*args)

        return checkpoint(body, *args, use_reentrant=False)

    for layer in layers:
        layer.gradient_checkpointing = layer.training = True
        layer._gradient_checkpointing_func = partial(run, layer)  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


def _layer(
    i: int, layer: Any, x: Tensor, cos: Tensor, sin: Tensor, layout: Layout, wanted: Tensor | None
) -> Tensor:
    attention, shape = layer.self_attn, (*x.shape[:2], -1, layer.self_attn.head_dim)
    h = rms_norm(layer.input_layernorm, x)
    k, v = attention.k_proj(h).view(shape), attention.v_proj(h).view(shape).transpose(1, 2)
    if hasattr(attention, "k_norm"):
        k = rms_norm(attention.k_norm, k)
    k = _rotate(k.transpose(1, 2), cos, sin)
    if wanted is not None:
        x = x[0, wanted]
        if isinstance(layout, TreeLayout) and not h.is_cuda:  # its fused kernel takes all queries
            h, cos, sin = h[:, wanted], cos[:, :, wanted], sin[:, :, wanted]
            layout, wanted = layout.of(wanted), None
    q = attention.q_proj(h).view(*h.shape[:2], *shape[2:])
    if hasattr(attention, "q_norm"):
        q = rms_norm(attention.q_norm, q)
    q = _rotate(q.transpose(1, 2), cos, sin)
    look = Look(scale=attention.scaling, window=window_of(attention))
    o = layout.attend(i, q, k, v, look).flatten(2)
    if x.dim() == 2:
        o = o[0] if wanted is None else o[0, wanted]
    x = x + attention.o_proj(o)
    return x + layer.mlp(rms_norm(layer.post_attention_layernorm, x))


def window_of(attention: Any) -> int | None:
    """Return a layer's attention window in tokens, read like the family's own code does."""
    if hasattr(attention, "sliding_window"):
        return attention.sliding_window
    return getattr(attention.config, "sliding_window", None)


def signed(sin: Tensor) -> Tensor:
    """Negate the first half of the sines: rotating swaps the halves and negates the first."""
    half = sin.shape[-1] // 2
    return torch.cat([-sin[..., :half], sin[..., half:]], -1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
