"""Tiny mixtures of experts, one of each way that transformers stores and routes them."""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    Glm4MoeConfig,
    GptOssConfig,
    MixtralConfig,
    NemotronHConfig,
    OlmoeConfig,
    PretrainedConfig,
    Qwen2MoeConfig,
    Qwen3_5MoeTextConfig,
    Qwen3MoeConfig,
)

SIZE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "num_experts_per_tok": 2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 2,
}
SPARSE: dict[str, Any] = SIZE | {
    "num_experts": 6,
    "moe_intermediate_size": 24,
    "decoder_sparse_step": 1,
}
GROUPED: dict[str, Any] = SIZE | {
    "n_routed_experts": 6,
    "moe_intermediate_size": 24,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,  # the first layer's MLP is dense
}
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
LINEAR_ATTENTION: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "shared_expert_intermediate_size": 24,
}
MAMBA: dict[str, Any] = {
    "layer_types": ["mamba", "attention", "moe"],
    "num_hidden_layers": 3,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 16,
    "n_groups": 1,
    "moe_shared_expert_intermediate_size": 24,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen3_moe": Qwen3MoeConfig(**SPARSE),
    "qwen2_moe": Qwen2MoeConfig(**SPARSE, shared_expert_intermediate_size=24),
    "mixtral": MixtralConfig(**SIZE, num_local_experts=6),
    "glm4_moe": Glm4MoeConfig(**GROUPED),
    "deepseek_v3": DeepseekV3Config(**GROUPED | LATENT),
    "olmoe": OlmoeConfig(**SPARSE),
    # Biases, matrices the other way round, gate and up in turns.
    "gpt_oss": GptOssConfig(**SIZE, num_local_experts=6, layer_types=["full_attention"] * 2),
    "qwen3_5_moe": Qwen3_5MoeTextConfig(**SPARSE | LINEAR_ATTENTION),
    "nemotron_h": NemotronHConfig(**GROUPED | MAMBA),  # experts without a gate
}


def make(name: str, seed: int = 0) -> Any:
    """Return one with random weights, all of which matter."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name]).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model
