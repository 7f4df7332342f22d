"""Tiny models with random weights, of the architectures that transformers can run.

Each is made from transformers' own config class: two or three layers of some 64 numbers, with what
sets its family apart at a size that a test of 64 tokens exceeds (windows of 8, chunks of 16, rope
that was trained on 32). Nothing in them is zero or symmetric, so that whoever leaves out a bias, a
sink or a window computes something else.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from art_cli.config.sections.model import TinyConfig
from art_cli.models import tiny
from art_cli.preflight.small_model.build import spread

VOCAB = 520
WINDOW, CHUNK, TRAINED = 8, 16, 32  # tokens
TEXTS = ["You are a desk. Cancel order 17, late: it is done. tool call name arguments " * 20]

# What every config gets of these, where its class knows the name.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCAB),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "linear_num_key_heads", "index_n_heads"), 2),
    **dict.fromkeys(("head_dim", "global_head_dim", "d_kv", "v_head_dim", "qk_nope_head_dim"), 16),
    **dict.fromkeys(("intermediate_size", "intermediate_size_mlp", "n_inner", "ffn_dim"), 96),
    "ffn_hidden_size": 96,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 512),
    **dict.fromkeys(("sliding_window", "attention_window_size"), WINDOW),
    **dict.fromkeys(
        ("attention_chunk_size", "chunk_size", "mamba_chunk_size", "block_size"), CHUNK
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"), 2),
    **dict.fromkeys(("top_k_experts", "linear_num_heads"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("moe_shared_expert_intermediate_size",), 32),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("moe_num_shared_experts", "n_groups", "mamba_n_groups"), 1),
    **dict.fromkeys(("decoder_sparse_step", "num_kv_shared_layers"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "index_head_dim", "index_topk"), 16),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("mamba_d_head", "mamba_d_state", "mamba_head_dim"), 16),
    **dict.fromkeys(("ssm_state_size", "state_size", "hidden_size_per_layer_input"), 16),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "num_heads", "qk_rope_head_dim"), 8),
    **dict.fromkeys(("laurel_rank",), 8),
    **dict.fromkeys(("linear_num_value_heads", "linear_conv_kernel_dim"), 4),
    "lru_width": 64,
    "qk_head_dim": 24,
    "mamba_expand": 2,
    "mamba_d_ssm": 128,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
VISION: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "embed_dim", "intermediate_size"), 32),
    **dict.fromkeys(("depth", "num_hidden_layers"), 1),
    **dict.fromkeys(("num_heads", "num_attention_heads"), 2),
    **dict.fromkeys(("vision_output_dim", "projector_input_dim", "projector_output_dim"), 32),
    "out_hidden_size": 64,
    "image_size": 28,
    "patch_size": 14,
    "head_dim": 16,
    "deepstack_visual_indexes": [0],
}
MLA = {"num_key_value_heads": 4, "head_dim": 8}
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def _rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


def _kinds(*kinds: str, **more: Any) -> dict[str, Any]:
    return {"layer_types": list(kinds), "num_hidden_layers": len(kinds), **more}


_YARN = _rope(
    "yarn",
    factor=16.0,
    original_max_position_embeddings=TRAINED,
    llama_4_scaling_beta=0.1,
    mscale=1.0,
    mscale_all_dim=1.0,
    beta_fast=32.0,
    beta_slow=1.0,
)

_MROPE = _rope("default", mrope_section=[2, 3, 3])
_HALF_MROPE = _rope("default", mrope_section=[2, 1, 1], partial_rotary_factor=0.5)

# Kind -> name -> what is changed in its config. A name is a model_type, up to its first ":".
ARCHITECTURES: dict[str, dict[str, dict[str, Any]]] = {
    "full attention": {
        "llama": {},
        "llama:tied": {"tie_word_embeddings": True},
        "llama:biases": {"attention_bias": True, "mlp_bias": True},
        "llama:padded": {"vocab_size": 576},
        "qwen2": {"use_sliding_window": False},
        "qwen2:tied": {"use_sliding_window": False, "tie_word_embeddings": True},
        "qwen3": {"use_sliding_window": False},
        "mistral": {"sliding_window": None},
        "phi3": {"sliding_window": None},
        "gemma": {},
        "olmo2": {},
        "glm4": {},
        "arcee": {},
        "seed_oss": {},
        "hunyuan_v1_dense": {},
        "ernie4_5": {},
        "apertus": {},
        "nanochat": {},
        "helium": {},
        "smollm3": {"no_rope_layers": [1, 0]},
        "starcoder2": {"sliding_window": None},
        "phi": {},
        "granite": {
            "attention_multiplier": 0.2,
            "logits_scaling": 8.0,
            "residual_multiplier": 0.22,
            "embedding_multiplier": 12.0,
        },
        "cohere": {"logit_scale": 0.5, "use_qk_norm": True},
        "stablelm": {"use_qkv_bias": True},
        "nemotron": {},
    },
    "rope": {
        "llama:llama3": _rope(
            "llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=TRAINED,
        ),
        "llama:yarn": _rope("yarn", factor=4.0, original_max_position_embeddings=TRAINED),
        "llama:linear": _rope("linear", factor=4.0),
        "llama:dynamic": {
            "max_position_embeddings": TRAINED,
            **_rope("dynamic", factor=4.0, original_max_position_embeddings=TRAINED),
        },
        "llama:partial": _rope("default", partial_rotary_factor=0.5),
        "phi3:longrope": {
            "sliding_window": None,
            "original_max_position_embeddings": TRAINED,
            **_rope(
                "longrope",
                short_factor=[1.0] * 8,
                long_factor=[4.0] * 8,
                factor=8.0,
                original_max_position_embeddings=TRAINED,
                partial_rotary_factor=1.0,
            ),
        },
        "ministral3": {"sliding_window": None, **_YARN},
    },
    "windows": {
        "mistral:window": {},
        "qwen2:window": {"use_sliding_window": True, "max_window_layers": 1},
        "phi3:window": {},
        "starcoder2:window": {},
        "ministral": _kinds(SLIDING, FULL),
        "ministral3:window": _YARN,
        "gemma2": _kinds(SLIDING, FULL, attn_logit_softcapping=2.0, final_logit_softcapping=5.0),
        "vaultgemma": _kinds(SLIDING, FULL),
        "gemma3_text": _kinds(SLIDING, FULL),
        "gemma3n_text": _kinds(SLIDING, FULL, num_kv_shared_layers=0),
        "gemma4_text": _kinds(SLIDING, FULL, num_kv_shared_layers=0),
        "gemma4_text:shared": _kinds(SLIDING, FULL, SLIDING, FULL, num_kv_shared_layers=2),
        "gpt_oss": _kinds(SLIDING, FULL),
        "olmo3": _kinds(SLIDING, FULL),
        "exaone4": _kinds(SLIDING, FULL, sliding_window_pattern=2),
        "cohere2": _kinds(SLIDING, FULL, logit_scale=0.5),
        "llama4_text": _kinds(
            "chunked_attention", FULL, no_rope_layers=[1, 0], floor_scale=16, attn_scale=0.1
        ),
    },
    "experts": {
        "mixtral": {"sliding_window": None},
        "mixtral:window": {},
        "phimoe": {},
        "qwen2_moe": {"use_sliding_window": False},
        "qwen3_moe": {"use_sliding_window": False},
        "glm4_moe": {},
        "minimax_m2": {},
        "dots1": {},
        "granitemoe": {"attention_multiplier": 0.2, "logits_scaling": 8.0},
        "olmoe": {},
        "flex_olmo": {},
        "hunyuan_v1_moe": {},
        "ernie4_5_moe": {},
        "solar_open": {},
        "jetmoe": {},
    },
    "latent attention": {
        "deepseek_v2": MLA,
        "deepseek_v3": {**MLA, "rope_interleave": True},
        "glm4_moe_lite": MLA,
        "youtu": MLA,
        "minicpm3": {**MLA, "head_dim": 24},
    },
    "recurrent": {
        "qwen3_next": _kinds(LINEAR, FULL),
        "qwen3_5_text": _kinds(LINEAR, FULL),
        "qwen3_5_moe_text": _kinds(LINEAR, FULL),
        "olmo_hybrid": _kinds(LINEAR, FULL),
        "kimi_linear": _kinds(LINEAR, FULL, num_key_value_heads=4),
        "minimax": _kinds(FULL, LINEAR),
        "granitemoehybrid": _kinds("mamba", "attention"),
        "nemotron_h": {"layers_block_type": [LINEAR, FULL, "moe", "mlp"]},
        "bamba": {"attn_layer_indices": [1]},
        "jamba": {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
        },
        "falcon_h1": {},
        "zamba2": {
            "layers_block_type": ["mamba", "hybrid", "hybrid"],
            "num_hidden_layers": 3,
            "n_mamba_heads": 8,
        },
        "lfm2": _kinds("conv", FULL),
        "lfm2_moe": _kinds("conv", FULL, num_dense_layers=1),
        "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
        "mamba2": {"head_dim": 16, "expand": 2},
        "falcon_mamba": {},
    },
    "of old": {
        "gpt2": {},
        "gpt_neox": {},
        "opt": {},
        "bloom": {},
        "falcon": {"alibi": False},
        "mpt": {},
        "xglm": {},
        "biogpt": {},
    },
    "wrapper": {
        "gemma3": _kinds(SLIDING, FULL),
        "gemma4": _kinds(SLIDING, FULL, num_kv_shared_layers=0),
        "llama4": _kinds("chunked_attention", FULL, no_rope_layers=[1, 0]),
        "mistral3": {"sliding_window": None},
        "qwen2_vl": _MROPE,
        "qwen2_5_vl": _MROPE,
        "qwen3_vl": _MROPE,
        "qwen3_5": _kinds(LINEAR, FULL, **_HALF_MROPE),
        "qwen3_5_moe": _kinds(LINEAR, FULL, **_HALF_MROPE),
        "glm4v": _MROPE,
        "llava": {},
        "internvl": {},
        "kimi_k25": MLA,
    },
}
NAMES = {kind: tuple(rows) for kind, rows in ARCHITECTURES.items()}
_ROWS = {name: (kind, more) for kind, rows in ARCHITECTURES.items() for name, more in rows.items()}


def make_config(name: str) -> PreTrainedConfig:
    """Return the config of an architecture of the table."""
    kind, more = copy.deepcopy(_ROWS[name])  # some classes write into what they are given
    config_class: Any = CONFIG_MAPPING[name.partition(":")[0]]
    config: Any = config_class()
    if kind != "wrapper":
        return config_class(**_known(config, SMALL) | more)
    text = type(config.text_config)
    vision = type(config.vision_config or config.sub_configs["vision_config"]())
    return config_class(
        text_config=text(**_known(text(), SMALL) | more),
        vision_config=vision(**_known(vision(), VISION)),
        **_known(config, {"projection_hidden_size": 32}),
    )


def make_architecture(name: str) -> PreTrainedModel:
    """Return the model: float32, for evaluation, the same weights each time."""
    config = make_config(name)
    made = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and _ROWS[name][0] != "wrapper"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        auto = AutoModelForCausalLM if made else AutoModelForImageTextToText
        model: PreTrainedModel = auto.from_config(config, dtype=torch.float32).eval()
    spread(model, seed=1)
    return model


def chatml_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of at most VOCAB tokens with a ChatML template that knows tools."""
    return tiny.make(TinyConfig(vocab_size=VOCAB - 8), TEXTS, 0)[1]


def write_architecture(name: str, folder: Path) -> Path:
    """Write the model and the tokenizer as a checkpoint that transformers loads."""
    make_architecture(name).save_pretrained(folder)
    chatml_tokenizer().save_pretrained(folder)
    return folder


def _known(config: PreTrainedConfig, values: dict[str, Any]) -> dict[str, Any]:
    names = config.to_dict()
    return {name: value for name, value in values.items() if name in names}
