"""A small config of any base: it makes a model, and keeps what sets the architecture apart."""

import copy
from typing import Any

import pytest
import torch
from published import PUBLISHED
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from art_cli.errors import UsageError
from art_cli.preflight.small_model.config import as_transformers_reads, shrunk
from art_cli.preflight.small_model.widths import TRAINED, WINDOW

VOCAB = 520
# What transformers' own class leaves out of its defaults, and cannot do without.
GIVEN: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 8},
    "ministral": {"head_dim": 128},
    "nemotron": {"head_dim": 128, "num_key_value_heads": 8},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
}
# Those that make no model even then, and why.
NOT_MADE = {
    "cohere_compass_text": "its default rope has no parameters for its kinds of layers",
    "dbrx": "its default attention has no rope_theta",
    "gemma3n": "its tower needs timm",
    "gemma4_assistant": "a draft model, without a vocabulary of its own",
    "gemma4_unified_assistant": "a draft model, without a vocabulary of its own",
    "musicgen": "it has no defaults, and speaks no text",
    "musicgen_melody": "it has no defaults, and speaks no text",
    "qwen4_exp": "its default indexer has no heads",
    "qwen4_exp_text": "its default indexer has no heads",
    "xmod": "it reads nothing before its language is set",
}
FAMILIES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def made(config: PreTrainedConfig) -> PreTrainedModel:
    is_causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    auto = AutoModelForCausalLM if is_causal else AutoModelForImageTextToText
    return auto.from_config(config, dtype=torch.float32).eval()


@torch.no_grad()
def logits(config: PreTrainedConfig, length: int) -> torch.Tensor:
    ids = torch.arange(3, 3 + length)[None]
    return made(config)(input_ids=ids, use_cache=False).logits


def default_of(family: str) -> dict[str, Any]:
    config = CONFIG_MAPPING[family]().to_diff_dict()
    return {**config, "model_type": family, **GIVEN.get(family, {})}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of GPT-BigCode
@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in NOT_MADE])
def test_the_default_config_of_every_causal_lm_makes_a_small_model(family: str) -> None:
    found = logits(shrunk(default_of(family), VOCAB), 8)
    assert found.shape == (1, 8, VOCAB) and bool(torch.isfinite(found).all())


@pytest.mark.parametrize("family", ["jamba", "deepseek_v32", "gemma4_text", "zamba2", "gpt_neo"])
def test_a_family_with_rules_of_its_own_makes_a_small_model(family: str) -> None:
    assert logits(shrunk(default_of(family), VOCAB), 8).shape == (1, 8, VOCAB)


@pytest.mark.slow
def test_what_is_said_to_make_no_model_makes_none() -> None:
    for family in NOT_MADE:
        with pytest.raises(Exception):  # noqa: B017  (each in its own way)
            logits(shrunk(default_of(family), VOCAB), 8)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_makes_a_small_model_with_every_kind_of_layer(name: str) -> None:
    before = copy.deepcopy(PUBLISHED[name])
    small = shrunk(PUBLISHED[name], VOCAB)
    assert PUBLISHED[name] == before
    whole: Any = as_transformers_reads(before).get_text_config()
    text: Any = small.get_text_config()
    kinds, left = getattr(whole, "layer_types", None), getattr(text, "layer_types", None)
    assert set(left or []) == set(kinds or [])
    for field in ("mlp_layer_types", "no_rope_layers"):
        every = getattr(whole, field, None) or []
        assert set(getattr(text, field, None) or []) == set(every), field
    assert 2 <= text.num_hidden_layers <= 4 and text.hidden_size == 64
    found = logits(small, 2 * TRAINED)
    assert found.shape == (1, 2 * TRAINED, VOCAB) and bool(torch.isfinite(found).all())
    assert sum(p.numel() for p in made(small).parameters()) < 1_000_000


def small_text(name: str) -> dict[str, Any]:
    return shrunk(PUBLISHED[name]).get_text_config().to_dict()


def test_what_sets_an_architecture_apart_stays() -> None:
    assert small_text("DeepSeek-V3")["first_k_dense_replace"] == 1
    assert (small_text("DeepSeek-V3")["n_group"], small_text("DeepSeek-V3")["topk_group"]) == (2, 1)
    assert small_text("gpt-oss-20b")["sliding_window"] == WINDOW
    assert small_text("Phi-4-mini-instruct")["sliding_window"] == 262144  # longer than any text
    assert small_text("Llama-4-Scout-17B-16E-Instruct")["num_experts_per_tok"] == 1
    assert small_text("Qwen3.5-4B")["rope_parameters"]["mrope_section"] == [2, 1, 1]
    rope = small_text("Phi-4-mini-instruct")["rope_parameters"]
    assert len(rope["long_factor"]) == 6 and rope["original_max_position_embeddings"] == 4096
    rope = small_text("gpt-oss-20b")["rope_parameters"]
    assert (rope["factor"], rope["original_max_position_embeddings"]) == (32.0, TRAINED)
    assert small_text("granite-4.0-h-tiny")["logits_scaling"] == 6


def test_weights_are_plain_and_special_tokens_are_the_base_s() -> None:
    small = shrunk(PUBLISHED["gpt-oss-20b"]).to_dict()
    assert "quantization_config" not in small
    assert (small["eos_token_id"], small["pad_token_id"]) == (200002, 199999)
    assert small["vocab_size"] == 201088


def test_what_no_class_of_transformers_reads_is_refused() -> None:
    with pytest.raises(UsageError, match=r"makes no language model: .*no_such_family"):
        shrunk({"model_type": "no_such_family"})
    with pytest.raises(UsageError, match="makes no language model"):
        shrunk({"model_type": "llama", "num_hidden_layers": "many"})
