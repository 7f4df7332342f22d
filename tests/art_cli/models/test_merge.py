"""One way to merge, on families that differ in what an adapter is put around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import TrainerError
from art_cli.models import merge
from art_cli.models.adapter import with_adapter
from art_cli.models.merge import write_merged
from art_cli.models.roles import parts_of
from tests import tiny_moe

SIZE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,  # grouped
    "intermediate_size": 48,
}
OWN_KEYS: dict[str, Any] = SIZE | {"num_key_value_heads": 4}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
FAMILIES: dict[str, PretrainedConfig] = {
    "biases": Qwen2Config(**SIZE),
    "biases-of-heads-with-own-keys": Qwen2Config(**OWN_KEYS),
    "tied-head": Qwen2Config(**SIZE, tie_word_embeddings=True),
    "norms-of-heads": Qwen3Config(**SIZE, head_dim=8),
    "biases-everywhere": LlamaConfig(**SIZE, attention_bias=True, mlp_bias=True),
    "experts": Qwen3MoeConfig(**SIZE, **EXPERTS),
    "experts-of-other-names": MixtralConfig(**SIZE, num_local_experts=4),
    "experts-beside-a-dense-mlp": tiny_moe.CONFIGS["glm4_moe"],
    "experts-the-other-way-round": tiny_moe.CONFIGS["gpt_oss"],
}


def adapted(base: Any) -> PeftModel:
    """The base under an adapter that has learned something; its biases are not zero."""
    with torch.no_grad():
        for p in base.parameters():
            p += 0.1 * torch.randn_like(p)
    targets = ["attention", "mlp"] + ["experts"] * any(p.is_fused for p in parts_of(base))
    model = with_adapter(base, AdapterConfig(rank=4, alpha=8, target_modules=targets))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p += 0.1 * torch.randn_like(p)
    return model.eval()


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        return model(torch.arange(40)[None] * 7 % 300).logits.float()


def weights_in(folder: Path) -> dict[str, Tensor]:
    files = [load_file(f) for f in sorted(folder.glob("*.safetensors"))]
    assert sum(map(len, files)) == len(set().union(*files)), "a weight is in two files"
    return {k: w for file in files for k, w in file.items()}


def shapes(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {k: (w.shape, w.dtype) for k, w in weights_in(folder).items()}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> PretrainedConfig:
    return FAMILIES[request.param]


@pytest.fixture(params=["loaded", "made"])
def base(request: pytest.FixtureRequest, family: PretrainedConfig, tmp_path: Path) -> Iterator[Any]:
    """Saved in `tmp_path`/base; transformers saves one that it has loaded by what it loaded."""
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(family)
    made.save_pretrained(tmp_path / "base")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    yield loaded if request.param == "loaded" else made


def test_merged_weights_are_named_and_shaped_as_the_bases_and_say_what_the_adapter_says(
    base: Any, tmp_path: Path
) -> None:
    base.config.save_pretrained(tmp_path)
    model = adapted(base)
    before = {k: p.clone() for k, p in model.state_dict().items()}
    write_merged(model, tmp_path)
    assert [f.name for f in tmp_path.glob("*.safetensors*")] == ["model.safetensors"]
    assert shapes(tmp_path) == shapes(tmp_path / "base")
    after = model.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before), "the model's own are untouched"
    load: Any = AutoModelForCausalLM.from_pretrained
    merged, info = load(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    expected = logits(model)
    with model.disable_adapter():
        assert (logits(model) - expected).abs().max() > 0.1, "the adapter says something"
    assert torch.allclose(logits(merged), expected, atol=1e-4)


def test_large_weights_come_in_several_files_that_transformers_loads(
    base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "FILE_SIZE", 1)  # a layer is never split
    base.config.save_pretrained(tmp_path)
    model = adapted(base)
    write_merged(model, tmp_path)
    files = sorted(f.name for f in tmp_path.glob("*.safetensors"))
    assert len(files) >= 4 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert shapes(tmp_path) == shapes(tmp_path / "base")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.allclose(logits(merged), logits(model), atol=1e-4)


def test_weights_of_16_bits_are_rounded_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_config(FAMILIES["biases"], dtype=torch.bfloat16)
    model = adapted(base)
    write_merged(model, tmp_path)
    name = "layers.1.mlp.up_proj"
    layer: Any = base.get_submodule(f"model.{name}")
    exact = layer.base_layer.weight.double() + layer.get_delta_weight("default").double()
    written = weights_in(tmp_path)[f"model.{name}.weight"]
    assert written.dtype == torch.bfloat16
    assert torch.equal(written, exact.to(torch.bfloat16))


def test_an_adapter_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    model = adapted(AutoModelForCausalLM.from_config(FAMILIES["biases"]))
    next(p for p in model.parameters() if p.requires_grad).data[0, 0] = float("nan")
    with pytest.raises(TrainerError, match=r"layers\.0\.self_attn\.q_proj\.weight is not finite"):
        write_merged(model, tmp_path)
