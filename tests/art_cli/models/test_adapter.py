"""What an adapter is put on, and that it computes on experts what PEFT says it does."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    Gemma3Config,
    Gemma3TextConfig,
    GPT2Config,
    Llama4TextConfig,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
    SiglipVisionConfig,
)

from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import CheckpointError, UsageError
from art_cli.models import experts
from art_cli.models.adapter import adapted_names, with_adapter
from art_cli.models.policy import Policy, Reference
from tests import tiny_moe

DENSE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
}
FAMILIES = {"qwen3": Qwen3Config, "llama": LlamaConfig, "qwen2.5": Qwen2Config}
EVERY_PART = ["attention", "mlp", "experts"]


def names(base: Any, *targets: str) -> set[str]:
    """The kinds of parts that are adapted, without the layer's number."""
    cfg = AdapterConfig(target_modules=list(targets)) if targets else AdapterConfig()
    found = adapted_names(with_adapter(base, cfg))
    return {n.split("layers.")[1].partition(".")[2] for n in found}


def learned(model: PeftModel) -> PeftModel:
    """Let the adapter say something."""
    torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p += 0.1 * torch.randn_like(p)
    return model.eval()


def trained(model: Any) -> dict[str, Tensor]:
    return {n: p for n, p in model.named_parameters() if p.requires_grad}


def logits(model: Any) -> Tensor:
    return model(torch.arange(20)[None] * 7 % 300, use_cache=False).logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_default_is_every_linear_map_of_a_dense_family_bit_for_bit(family: str) -> None:
    base = AutoModelForCausalLM.from_config(FAMILIES[family](**DENSE | {"num_hidden_layers": 3}))
    every = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    torch.manual_seed(0)
    expected: Any = get_peft_model(copy.deepcopy(base), every)
    torch.manual_seed(0)
    mine = with_adapter(base, AdapterConfig(rank=4, alpha=8))
    assert list(trained(mine)) == list(trained(expected))
    assert all(torch.equal(p, trained(expected)[n]) for n, p in trained(mine).items())
    saved, known = mine.peft_config["default"], expected.peft_config["default"]
    assert saved.to_dict() == known.to_dict(), "adapter_config.json says the same"


def test_the_default_leaves_router_experts_and_head_alone() -> None:
    for name in tiny_moe.CONFIGS:
        found = names(tiny_moe.make(name))
        assert found, name
        assert not {n for n in found if "experts." in n and "shared" not in n}, name
        assert not {n for n in found if n.endswith((".gate", ".router", "_gate"))}, name
    assert names(tiny_moe.make("deepseek_v3")) >= {
        "self_attn.kv_a_proj_with_mqa",
        "mlp.gate_proj",  # of the dense layer
        "mlp.shared_experts.gate_proj",
    }
    assert "linear_attn.in_proj_qkv" in names(tiny_moe.make("qwen3_5_moe"))
    assert "mixer.in_proj" in names(tiny_moe.make("nemotron_h"), "attention")


def test_words_and_names_choose() -> None:
    attention = {f"self_attn.{c}_proj" for c in "qkvo"}
    experts = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
    shared = {f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")}
    assert names(tiny_moe.make("qwen2_moe"), "attention") == attention
    assert names(tiny_moe.make("qwen2_moe"), "mlp") == shared
    assert names(tiny_moe.make("qwen2_moe"), "experts") == experts
    assert names(tiny_moe.make("qwen2_moe"), *EVERY_PART) == attention | shared | experts
    assert names(tiny_moe.make("qwen2_moe"), "q_proj", "experts.*") == experts | {
        "self_attn.q_proj"
    }
    cfg = AdapterConfig(target_modules=["*.0.self_attn.?_proj"])
    first = with_adapter(tiny_moe.make("mixtral"), cfg)
    assert adapted_names(first) == {f"model.layers.0.self_attn.{c}_proj" for c in "qkvo"}
    base = AutoModelForCausalLM.from_config(
        GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=4)
    )
    assert len(adapted_names(with_adapter(base, AdapterConfig(target_modules=["mlp"])))) == 2


@pytest.mark.parametrize(
    ("name", "target", "message"),
    [
        ("qwen3", "experts", "'experts' finds nothing in Qwen3ForCausalLM. It has attention: self"),
        ("qwen3", "qproj", "'qproj' finds nothing .* mlp.gate_proj.* Write one of these words"),
        ("qwen3", "lm_head", "names lm_head of Qwen3ForCausalLM, which cannot be adapted: only"),
        ("llama4", "experts", "the experts of Llama4ForCausalLM .* leave experts out"),
    ],
)
def test_what_a_base_has_not_is_refused(name: str, target: str, message: str) -> None:
    if name == "llama4":
        cfg = Llama4TextConfig(**DENSE, head_dim=8, intermediate_size_mlp=48, num_local_experts=4)
        base = AutoModelForCausalLM.from_config(cfg)
    else:
        base = AutoModelForCausalLM.from_config(FAMILIES[name](**DENSE))
    with pytest.raises(UsageError, match=message):
        with_adapter(base, AdapterConfig(target_modules=["attention", target]))


def test_a_router_is_not_adapted() -> None:
    with pytest.raises(UsageError, match=r"shared_expert_gate of Qwen2Moe.* except routers"):
        with_adapter(
            tiny_moe.make("qwen2_moe"), AdapterConfig(target_modules=["shared_expert_gate"])
        )


def test_a_vision_tower_is_not_adapted_and_cannot_be() -> None:
    text = Gemma3TextConfig(**DENSE, head_dim=8)
    vision = SiglipVisionConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    base = AutoModelForImageTextToText.from_config(
        Gemma3Config(text_config=text, vision_config=vision)
    )
    with pytest.raises(UsageError, match=r"names .*vision_tower.* which cannot be adapted"):
        with_adapter(base, AdapterConfig(target_modules=["*vision_tower*"]))
    adapted = with_adapter(base, AdapterConfig())
    assert len(adapted_names(adapted)) == 2 * 7
    learned(adapted)
    logits(adapted).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in trained(adapted).values())


@pytest.mark.parametrize("name", tiny_moe.CONFIGS)
def test_experts_compute_and_learn_what_peft_does_with_dense_deltas(
    name: str, tmp_path: Path
) -> None:
    mine = learned(
        with_adapter(tiny_moe.make(name), AdapterConfig(rank=3, alpha=6, target_modules=EVERY_PART))
    )
    mine.save_pretrained(str(tmp_path))
    theirs: Any = PeftModel.from_pretrained(tiny_moe.make(name), str(tmp_path), is_trainable=True)
    assert list(trained(theirs)) == list(trained(mine)), "all that is saved is loaded"
    ours, expected = logits(mine), logits(theirs.eval())
    assert torch.allclose(ours, expected, atol=1e-5 * float(expected.detach().abs().max()))
    with mine.disable_adapter():
        plain = logits(mine)
    assert (plain - expected).abs().max() > 0.05, "the adapter says something"
    assert torch.allclose(plain, logits(tiny_moe.make(name)), atol=1e-6)
    for result in (ours, expected):
        (result.float() * torch.linspace(-1, 1, result.shape[-1])).sum().backward()
    for key, p in trained(theirs).items():
        got = trained(mine)[key].grad
        assert got is not None and p.grad is not None
        assert torch.allclose(got, p.grad, rtol=1e-3, atol=1e-4 * float(p.grad.abs().max())), key


def test_an_update_of_experts_keeps_no_dense_delta() -> None:
    """What autograd keeps grows with the tokens, not with the weights of all experts."""
    base = tiny_moe.make("qwen3_moe")
    weights = sum(p.numel() * 4 for n, p in base.named_parameters() if ".experts." in n)
    model = learned(with_adapter(base, AdapterConfig(rank=2, target_modules=["experts"])))
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        model(torch.tensor([[5, 6]]), use_cache=False)
    assert sum(n for at, n in kept.items() if at not in parameters) < weights / 2


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_the_grouped_product_of_gpus_gives_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, which has it too."""
    model = learned(
        with_adapter(tiny_moe.make(name), AdapterConfig(rank=3, target_modules=["experts"]))
    )
    results = []
    for grouped in (False, True):
        monkeypatch.setattr(experts, "_has_grouped_product", lambda _, grouped=grouped: grouped)
        model.zero_grad()
        out = logits(model)
        out.square().sum().backward()
        results.append([out, *(p.grad for p in trained(model).values())])
    for mine, theirs in zip(*results, strict=True):
        assert torch.allclose(
            mine, theirs, rtol=1e-3, atol=1e-4 * float(theirs.detach().abs().max())
        )


def test_a_policy_with_adapted_experts_is_kept_copied_and_switched_off(tmp_path: Path) -> None:
    tokenizer: Any = None
    policy = Policy(tiny_moe.make("qwen3_moe"), tokenizer)
    ids, positions = torch.arange(9)[None], torch.arange(9)[None]
    plain = policy.hidden(ids, positions)
    policy.add_adapter(AdapterConfig(rank=2, target_modules=EVERY_PART), 0)
    policy.keep_reference()
    assert torch.allclose(policy.hidden(ids, positions), plain, atol=1e-5), (
        "a fresh one adds nothing"
    )
    twin, other = policy.twin(), Policy(tiny_moe.make("qwen3_moe"), tokenizer)
    assert isinstance(policy.model, PeftModel)
    learned(policy.model)
    found = policy.hidden(ids, positions)
    assert (found - plain).abs().max() > 0.01
    assert torch.allclose(twin.hidden(ids, positions), plain, atol=1e-5)
    twin.copy_weights(policy)
    assert torch.equal(twin.hidden(ids, positions), found)
    with policy.as_reference():
        assert torch.allclose(policy.hidden(ids, positions), plain, atol=1e-5)
    assert torch.allclose(Reference(policy).hidden(ids, positions), plain, atol=1e-5)
    policy.save_weights(tmp_path)
    other.add_adapter(AdapterConfig(rank=2, target_modules=EVERY_PART), 1)
    other.load(tmp_path)
    assert torch.equal(other.hidden(ids, positions), found)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    weights.pop(next(iter(weights)))
    save_file(weights, tmp_path / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="it has no weights for"):
        other.load(tmp_path)
