"""A mixture of experts with and without adapters: one token, and what an update keeps.

26M parameters, 64 experts a layer of which 4 are asked, rank 16. The sides alternate; what is
printed are medians of CPU seconds, their ratio to the base without an adapter, and the bytes that
autograd keeps of 64 tokens beside the parameters. `dense` is PEFT's own forward.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")

import torch
from peft.tuners.lora.layer import ParamWrapper
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from art_cli.config.sections.model import AdapterConfig
from art_cli.models.adapter import with_adapter

SHAPE: dict[str, Any] = {
    "vocab_size": 520,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "moe_intermediate_size": 128,
    "num_experts": 64,
    "num_experts_per_tok": 4,
}
SIDES: dict[str, list[str]] = {
    "base": [],
    "default": ["attention", "mlp"],
    "experts": ["attention", "mlp", "experts"],
    "dense": ["attention", "mlp", "experts"],
}
TOKENS = 64  # tokens of an update
FORWARDS = 20  # forward passes per measurement


def main() -> None:
    """Measure all sides alternately."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    models = {side: model_of(side) for side in SIDES}
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(args.rounds):
        for side, model in models.items():
            seconds[side].append(one_token(model))
    base = statistics.median(seconds["base"])
    results = {}
    for side, model in models.items():
        middle = statistics.median(seconds[side])
        results[side] = {
            "one_token_ms": round(1000 * middle, 2),
            "times_base": round(middle / base, 2),
            "kept_mb": round(kept(model) / 2**20, 1),
            "adapter_parameters": sum(p.numel() for p in trained(model)),
        }
        print(side, json.dumps(results[side]))
    if args.out:
        args.out.write_text(json.dumps(results, indent=2) + "\n")


def model_of(side: str) -> Any:
    """Return the model of one side. All sides have the same weights."""
    torch.manual_seed(0)
    base: Any = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE)).eval()
    if not SIDES[side]:
        return base.requires_grad_(False)
    model = with_adapter(base, AdapterConfig(target_modules=SIDES[side])).eval()
    if side == "dense":
        for module in model.modules():
            if isinstance(module, ParamWrapper):
                module.__class__ = ParamWrapper
    return model


def trained(model: Any) -> list[torch.Tensor]:
    """Return the adapter's weights."""
    return [p for p in model.parameters() if p.requires_grad]


@torch.inference_mode()
def one_token(model: Any) -> float:
    """Return CPU seconds of a forward of one token."""
    ids = torch.tensor([[5]])
    model(ids, use_cache=False)
    began = time.process_time()
    for _ in range(FORWARDS):
        model(ids, use_cache=False)
    return (time.process_time() - began) / FORWARDS


def kept(model: Any) -> int:
    """Return the bytes that autograd stores in a forward pass, besides the parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found: dict[int, int] = {}

    def note(x: torch.Tensor) -> torch.Tensor:
        found[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    ids = torch.arange(TOKENS)[None] * 7 % SHAPE["vocab_size"]
    embedded = model.get_input_embeddings()(ids).detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        model(inputs_embeds=embedded, use_cache=False)
    return sum(n for at, n in found.items() if at not in parameters)


if __name__ == "__main__":
    main()
