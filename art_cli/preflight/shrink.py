"""A small config of the same architecture as a config.json: what can be tried of a base anywhere.

Widths and counts become small, and what sets the architecture apart stays: one layer of each kind
in their order, windows and chunks that a short conversation exceeds, the rope's scaling, experts,
latent ranks, towers of wrappers, special tokens. transformers' own config class reads the
config.json first, so that old names of fields and defaults that are not written are known.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig

from art_cli.errors import UsageError

HIDDEN, HEADS, HEAD_DIM = 64, 4, 16
WINDOW, CHUNK, TRAINED = 16, 32, 64  # tokens: of a window, of a chunk, that rope was trained on
DROPPED = ("quantization_config", "dtype", "torch_dtype", "_name_or_path", "auto_map")
BROKEN = (
    *(ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError, IndexError),
    StrictDataclassError,  # a field of the wrong type
)

# What a field is at most, by its name.
AT_MOST: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "lru_width", "dim_model"), HIDDEN),
    **dict.fromkeys(("word_embed_proj_dim", "out_hidden_size", "text_hidden_size"), HIDDEN),
    **dict.fromkeys(("embedding_size", "hidden_size_global", "decoder_hidden_size"), HIDDEN),
    **dict.fromkeys(("hc_lowrank", "embedding_dim", "emb_dim", "image_token_embed_dim"), HIDDEN),
    **dict.fromkeys(("output_dim", "moe_latent_size", "router_hidden_size", "embed_dim"), HIDDEN),
    **dict.fromkeys(("vision_output_dim", "projector_input_dim", "projector_output_dim"), HIDDEN),
    **dict.fromkeys(("projector_hidden_size", "projection_hidden_size", "projection_dim"), HIDDEN),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), HEADS),
    **dict.fromkeys(("linear_num_value_heads", "linear_num_heads", "num_query_groups"), HEADS),
    **dict.fromkeys(("swa_num_attention_heads", "num_sliding_attention_heads"), HEADS),
    "num_heads": HEADS,
    **dict.fromkeys(("index_n_heads", "resampler_n_heads", "conf_num_attention_heads"), HEADS),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 8),
    **dict.fromkeys(("head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim", "swa_head_dim"), 16),
    **dict.fromkeys(("kv_channels", "attention_head_size", "resampler_head_dim", "d_head"), 16),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("index_head_dim", "q_lora_rank", "kv_lora_rank", "o_lora_rank"), 16),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_d_state", "ssm_state_size"), 16),
    **dict.fromkeys(
        ("state_size", "hidden_size_per_layer_input", "index_topk", "adapter_rank"), 16
    ),
    **dict.fromkeys(("qk_rope_head_dim", "laurel_rank", "rotary_dim", "gated_norm_rank"), 8),
    **dict.fromkeys(("time_step_rank", "mamba_dt_rank"), 4),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "n_inner", "ffn_dim"), 96),
    **dict.fromkeys(("ffn_hidden_size", "dense_intermediate_size", "dim_ff", "dff", "d_inner"), 96),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "feed_forward_size", "d_ff"), 96),
    **dict.fromkeys(("mlp_dim", "alignment_intermediate_size", "merged_hidden_size"), 96),
    **dict.fromkeys(("projection_intermediate_size", "resampler_ff_mult"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("moe_shared_expert_intermediate_size", "share_expert_dim"), 32),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "zero_expert_num"), 4),
    **dict.fromkeys(("moe_num_experts",), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("top_k_experts", "n_group", "n_groups", "mamba_n_groups"), 2),
    **dict.fromkeys(("mamba_ngroups", "decoder_sparse_step", "o_groups", "num_global_layers"), 2),
    **dict.fromkeys(("topk_group", "moe_num_shared_experts", "n_shared_experts"), 1),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_decoder_layers", "num_blocks"), 2),
    **dict.fromkeys(("sliding_window", "attention_window_size", "sliding_window_size"), WINDOW),
    **dict.fromkeys(("local_attention", "keep_window_size"), WINDOW),
    **dict.fromkeys(
        ("attention_chunk_size", "chunk_size", "mamba_chunk_size", "floor_scale"), CHUNK
    ),
    "encoder_hash_byte_group_vocab": 512,
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
}
# A count of key heads, and that of the heads which it must divide.
KEY_HEADS = {
    "num_key_value_heads": "num_attention_heads",
    "num_kv_heads": "num_attention_heads",
    "num_global_key_value_heads": "num_attention_heads",
    "linear_num_key_heads": "linear_num_value_heads",
    "swa_num_key_value_heads": "swa_num_attention_heads",
}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "layers")
MOST_LAYERS = 8
LEADING = (  # how many layers at the beginning are of one kind
    *("first_k_dense_replace", "num_dense_layers", "max_window_layers", "num_hash_layers"),
    *("moe_layer_start_index",),
)
TRAILING = ("num_kv_shared_layers",)  # likewise at the end
INDEXES = ("_layers", "_ids", "_indices", "_idxs", "_indexes")  # ends of names of lists of layers


def shrunk(config: dict[str, Any], vocab_size: int | None = None) -> PreTrainedConfig:
    """Return a small config of the architecture, with this vocabulary or its own.

    Raises UsageError where transformers makes no config of it.
    """
    whole = as_transformers_reads(config)
    try:
        return type(whole)(**_small(whole, config, vocab_size))
    except BROKEN as e:
        raise no_model(e) from e


def as_transformers_reads(config: dict[str, Any]) -> PreTrainedConfig:
    """Return transformers' object of a config.json, without what says how weights are stored.

    Raises UsageError where it makes none of it.
    """
    known = {name: value for name, value in config.items() if name not in DROPPED}
    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(known), encoding="utf-8")
        try:
            return AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except BROKEN as e:
            raise no_model(e) from e


def no_model(error: Exception) -> UsageError:
    """Return the error for a config.json that transformers cannot make a model of."""
    said = " ".join(str(error).split())
    return UsageError(f"model.base: its config.json makes no language model: {said:.300}")


def _small(
    config: PreTrainedConfig, given: dict[str, Any], vocab_size: int | None
) -> dict[str, Any]:
    """Return the fields of a config, and of those in it, for a small one of its class.

    What a class derives from its fields is left out, for it to derive again.
    """
    own = {config.attribute_map.get(field.name, field.name) for field in fields(config)}
    own |= {"per_layer_config", *(name for name in given if name in (*AT_MOST, *KEY_HEADS))}
    own -= set(DROPPED)
    whole = {name: value for name, value in config.to_dict().items() if name in own}
    small = _of_fewer_layers(whole)
    small |= {
        name: _at_most(value, AT_MOST[name])
        for name, value in small.items()
        if name in AT_MOST and not _is_without_effect(name, whole)
    }
    small |= _heads(whole, small)
    if whole.get("rope_parameters"):
        small["rope_parameters"] = _rope(whole, small)
    for name in config.sub_configs:
        inner = getattr(config, name, None)
        if isinstance(inner, PreTrainedConfig):
            spoken = name in ("text_config", "decoder", "vlm_config")
            small[name] = {
                **_small(inner, given.get(name) or {}, vocab_size if spoken else None),
                "model_type": inner.model_type,
            }
    return small | (_vocabulary(small, vocab_size) if vocab_size else {})


def _at_most(value: Any, most: int) -> Any:
    if isinstance(value, list | tuple):
        return [_at_most(each, most) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(value, most) if is_number else value


def _is_without_effect(name: str, whole: dict[str, Any]) -> bool:
    """Return whether a window is as long as any text."""
    longest = whole.get("max_position_embeddings")
    return name == "sliding_window" and bool(longest and (whole[name] or 0) >= longest)


# -- layers --------------------------------------------------------------------------------


def _of_fewer_layers(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with the first layer of each kind, and at least two layers."""
    name = next((name for name in LAYERS if isinstance(whole.get(name), int)), None)
    lists = [v for k, v in whole.items() if k in ("layer_types", "layers_block_type") and v]
    count = whole[name] if name else len(lists[0]) if lists else 0
    if not count:
        return dict(whole)
    patterns = {k: p for k, v in whole.items() if (p := _pattern(k, v, count)) is not None}
    if "attn_layer_period" in whole and not lists:
        kept = list(range(min(count, AT_MOST["attn_layer_period"])))
    else:
        kinds = list(zip(*patterns.values(), strict=True)) or [()] * count
        kept = [i for i, kind in enumerate(kinds) if _is_new(kind, kinds[:i])][:MOST_LAYERS]
        kept = sorted({*kept, *[i for i in range(count) if i not in kept][: max(0, 2 - len(kept))]})
    small = dict(whole)
    for field, pattern in patterns.items():
        chosen = [pattern[index] for index in kept]
        if field in (*LEADING, *TRAILING):
            small[field] = sum(chosen)
        elif field == "per_layer_config":
            small[field] = {i: each for i, each in enumerate(chosen) if each}
        elif pattern == list(whole[field]):
            small[field] = chosen
        else:
            small[field] = [i for i, is_in in enumerate(chosen) if is_in]
    if "attention_types" in small:  # of GPT-Neo: [[kinds, how often]]
        small["attention_types"] = [[small["attention_types"][0][0][: len(kept)], 1]]
    return small | ({name: len(kept)} if name else {})


def _is_new(kind: tuple[Any, ...], before: list[tuple[Any, ...]]) -> bool:
    """Return whether a layer of the kind is to be kept: twice where layers share their weights."""
    return before.count(kind) < (2 if "hybrid" in kind else 1)


def _pattern(name: str, value: Any, count: int) -> list[Any] | None:
    """Return what a field says of each layer; None where it is not about layers."""
    if name in LEADING and isinstance(value, int):
        return [index < value for index in range(count)]
    if name in TRAILING and isinstance(value, int):
        return [index >= count - value for index in range(count)]
    if name == "per_layer_config" and value:
        by_index = {int(index): each for index, each in value.items()}
        return [by_index.get(index) for index in range(count)]
    if not isinstance(value, list | tuple) or name.endswith("token_id"):
        return None
    is_indexes = all(type(each) is int and 0 <= each < count for each in value)
    if name.endswith(INDEXES) and is_indexes and list(value) == sorted(set(value)):
        return [index in value for index in range(count)]
    return list(value) if len(value) == count else None


# -- widths that hang together ---------------------------------------------------------------


def _heads(whole: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return numbers and widths of heads, and what is said in their proportion."""
    found: dict[str, Any] = {}
    for name, of in KEY_HEADS.items():
        if isinstance(whole.get(name), int) and isinstance(whole.get(of), int):
            several = small[of] if whole[name] == whole[of] else 2
            found[name] = min(whole[name], several)
    if isinstance(whole.get("qk_head_dim"), int) and "qk_nope_head_dim" in small:
        found["qk_head_dim"] = small["qk_nope_head_dim"] + small["qk_rope_head_dim"]
    if isinstance(whole.get("mamba_d_ssm"), int):
        found["mamba_d_ssm"] = small["mamba_n_heads"] * small["mamba_d_head"]
    if isinstance(whole.get("attention_hidden_size"), int):
        found["attention_hidden_size"] = (
            HIDDEN * whole["attention_hidden_size"] // whole["hidden_size"]
        )
    if "expand" in whole and "num_heads" in whole and whole.get("head_dim"):  # Mamba-2
        return found | {"head_dim": HIDDEN * whole["expand"] // small["num_heads"]}
    width = _head_dim(whole, small)
    old = whole.get("head_dim") or _ratio(whole, "hidden_size", "num_attention_heads")
    if isinstance(whole.get("head_dim"), int):
        found["head_dim"] = width
    if not isinstance(old, int):
        return found
    for name in ("global_head_dim", "query_pre_attn_scalar"):
        if isinstance(whole.get(name), int | float):
            found[name] = max(1, int(whole[name] * width / old))
    if isinstance(whole.get("attention_multiplier"), float):  # of Granite: 1 / head_dim
        found["attention_multiplier"] = whole["attention_multiplier"] * old / width
    if isinstance(whole.get("dim_model_base"), int):
        found["dim_model_base"] = max(1, whole["dim_model_base"] * HIDDEN // whole["hidden_size"])
    if small.get("per_layer_config"):
        found["per_layer_config"] = {
            index: _of_layer(whole, small | found, overrides)
            for index, overrides in small["per_layer_config"].items()
        }
    return found


def _of_layer(
    whole: dict[str, Any], small: dict[str, Any], layer: dict[str, Any]
) -> dict[str, Any]:
    """Return what one layer has of its own, in the proportions of all."""
    found = {k: _at_most(v, AT_MOST[k]) if k in AT_MOST else v for k, v in layer.items()}
    if "head_dim" in layer and whole.get("head_dim"):
        found["head_dim"] = max(4, layer["head_dim"] * small["head_dim"] // whole["head_dim"])
    return (
        found
        | _heads(whole | layer, small | found | {"per_layer_config": None})
        | {name: found[name] for name in ("head_dim",) if name in found}
    )


def _ratio(values: dict[str, Any], one: str, other: str) -> int | None:
    above, below = values.get(one), values.get(other)
    return above // below if isinstance(above, int) and isinstance(below, int) else None


def _head_dim(whole: dict[str, Any], small: dict[str, Any]) -> int:
    """Return the width of a head: of latent attention's in its parts; wide enough to rotate."""
    latent, rotated = whole.get("qk_rope_head_dim"), whole.get("qk_nope_head_dim")
    if latent and whole.get("head_dim") == latent:
        return small["qk_rope_head_dim"]
    if latent and rotated and whole.get("head_dim") == latent + rotated:
        return small["qk_rope_head_dim"] + small["qk_nope_head_dim"]
    parts = [rope.get("partial_rotary_factor") or 1.0 for rope in _ropes(whole)]
    return 2 * HEAD_DIM if whole.get("head_dim") and min(parts, default=1.0) < 0.5 else HEAD_DIM


def _ropes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rope's parameters: of the model, or of each kind of layer."""
    rope = values.get("rope_parameters") or {}
    several = [each for each in rope.values() if isinstance(each, dict)]
    return several or [rope]


def _rope(whole: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return the rope's parameters for narrower heads and shorter texts."""
    given = whole["rope_parameters"]
    if any(isinstance(each, dict) for each in given.values()):
        return {
            kind: _rope(whole | {"rope_parameters": each}, small) if each else each
            for kind, each in given.items()
        }
    latent, parts = small.get("qk_rope_head_dim"), given.get("partial_rotary_factor")
    half = int(_head_dim(whole, small) * (parts or 1.0)) // 2
    found = dict(given)
    if latent:
        rotated, rest = whole["qk_rope_head_dim"], whole.get("qk_nope_head_dim") or 0
        half = latent // 2
        if parts and rest and abs(parts - rotated / (rotated + rest)) < 1e-6:
            found["partial_rotary_factor"] = latent / (latent + small["qk_nope_head_dim"])
    for name in ("short_factor", "long_factor"):
        if given.get(name):
            found[name] = given[name][:: max(1, len(given[name]) // half)][:half]
    if sections := given.get("mrope_section"):
        found["mrope_section"] = _sections(sections, half)
    if given.get("original_max_position_embeddings") and not depends_on_length(given):
        found["original_max_position_embeddings"] = TRAINED
    return found


def depends_on_length(rope: dict[str, Any]) -> bool:
    """Return whether the rope turns otherwise where a forward is longer than it was trained on.

    Then neither a shared prefix nor a cache is right beyond that length.
    """
    return rope.get("rope_type", rope.get("type")) in ("longrope", "dynamic")


def _sections(sections: list[int], half: int) -> list[int]:
    """Return the sections in their proportions, `half` in all."""
    found = [max(1, each * half // sum(sections)) for each in sections]
    found[0] += half - sum(found)
    return found


def _vocabulary(small: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the size, and the special tokens that are in it."""
    names = ("vocab_size", "vocab_size_per_layer_input", "decoder_vocab_size")
    found: dict[str, Any] = {name: size for name in names if small.get(name)}
    for name, value in small.items():
        if not name.endswith(("_token_id", "_token_index")):
            continue
        if isinstance(value, list):
            found[name] = [each for each in value if each < size] or [size - 1]
        elif isinstance(value, int) and value >= size:
            found[name] = size - 1
    return found
