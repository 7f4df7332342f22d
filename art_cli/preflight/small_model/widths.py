"""Widths of a small config, in proportion to those of the original."""

from __future__ import annotations

from typing import Any

HIDDEN, HEADS, HEAD_DIM = 64, 4, 16
WINDOW, CHUNK, TRAINED = 16, 32, 64  # tokens: window, chunk, RoPE's training length

# Maximum value of a config field, by name.
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
# Count of key heads -> count of the heads that it must divide.
KEY_HEADS = {
    "num_key_value_heads": "num_attention_heads",
    "num_kv_heads": "num_attention_heads",
    "num_global_key_value_heads": "num_attention_heads",
    "linear_num_key_heads": "linear_num_value_heads",
    "swa_num_key_value_heads": "swa_num_attention_heads",
}


def at_most(value: Any, most: int) -> Any:
    if isinstance(value, list | tuple):
        return [at_most(each, most) for each in value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(value, most) if is_number else value


def heads_of(whole: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers and widths of heads, and fields in proportion to them."""
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
    """Return one layer's own overrides, shrunk in proportion like the whole model."""
    found = {k: at_most(v, AT_MOST[k]) if k in AT_MOST else v for k, v in layer.items()}
    if "head_dim" in layer and whole.get("head_dim"):
        found["head_dim"] = max(4, layer["head_dim"] * small["head_dim"] // whole["head_dim"])
    return (
        found
        | heads_of(whole | layer, small | found | {"per_layer_config": None})
        | {name: found[name] for name in ("head_dim",) if name in found}
    )


def _ratio(values: dict[str, Any], one: str, other: str) -> int | None:
    above, below = values.get(one), values.get(other)
    return above // below if isinstance(above, int) and isinstance(below, int) else None


def _head_dim(whole: dict[str, Any], small: dict[str, Any]) -> int:
    """Return the width of a head, wide enough for RoPE. Latent attention has its own parts."""
    latent, rotated = whole.get("qk_rope_head_dim"), whole.get("qk_nope_head_dim")
    if latent and whole.get("head_dim") == latent:
        return small["qk_rope_head_dim"]
    if latent and rotated and whole.get("head_dim") == latent + rotated:
        return small["qk_rope_head_dim"] + small["qk_nope_head_dim"]
    parts = [rope.get("partial_rotary_factor") or 1.0 for rope in _ropes(whole)]
    return 2 * HEAD_DIM if whole.get("head_dim") and min(parts, default=1.0) < 0.5 else HEAD_DIM


def _ropes(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the RoPE parameters of the model, or those of each kind of layer."""
    rope = values.get("rope_parameters") or {}
    several = [each for each in rope.values() if isinstance(each, dict)]
    return several or [rope]


def rope_of(whole: dict[str, Any], small: dict[str, Any]) -> dict[str, Any]:
    """Return the RoPE parameters for narrower heads and shorter texts."""
    given = whole["rope_parameters"]
    if any(isinstance(each, dict) for each in given.values()):
        return {
            kind: rope_of(whole | {"rope_parameters": each}, small) if each else each
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
    """Return whether RoPE changes for a forward longer than its training length.

    Then neither shared prefixes nor caches are correct beyond that length.
    """
    return rope.get("rope_type", rope.get("type")) in ("longrope", "dynamic")


def _sections(sections: list[int], half: int) -> list[int]:
    """Return the sections in proportion, with the sum `half`."""
    found = [max(1, each * half // sum(sections)) for each in sections]
    found[0] += half - sum(found)
    return found
