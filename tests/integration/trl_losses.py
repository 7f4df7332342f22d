"""TRL's loss and gradient of a batch, by its own GRPOTrainer: run in an environment with TRL.

    python trl_losses.py BATCH OUT

Both are files of torch: a batch with the arguments of a GRPOConfig for each case, and a list of
(loss, {name: gradient}).
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]


def main() -> None:
    """Compute every case."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batch = torch.load(sys.argv[1], weights_only=True)
    out = [loss_of(batch, case) for case in batch["cases"]]
    torch.save(out, sys.argv[2])


def loss_of(batch: dict[str, Any], case: dict[str, Any]) -> tuple[float, dict[str, torch.Tensor]]:
    """Return what TRL computes in float64 where all of a step is one microbatch."""
    inputs = {**batch["inputs"]}
    model: Any = AutoModelForCausalLM.from_pretrained(batch["model"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=len(inputs["advantages"]),
                num_generations=len(inputs["advantages"]),
                temperature=batch["temperature"],
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=True,
                report_to=[],
                **case,
            ),
            train_dataset=Dataset.from_list([{"prompt": "not sampled here"}]),
            processing_class=AutoTokenizer.from_pretrained(batch["model"]),
            reward_funcs=lambda completions, **_: [0.0 for _ in completions],
        )
    trainer.current_gradient_accumulation_steps = 1
    if case.get("beta"):
        reference: Any = AutoModelForCausalLM.from_pretrained(batch["reference"])
        trainer.ref_model.load_state_dict(reference.state_dict())
        inputs["ref_per_token_logps"] = logprobs(trainer, trainer.ref_model.double(), inputs)
    loss = trainer._compute_loss(model.double().train(), inputs)
    loss.backward()
    return loss.item(), {n: p.grad for n, p in model.named_parameters()}


@torch.no_grad()
def logprobs(trainer: Any, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """[B, C], as the trainer computes those of its own reference."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    found: torch.Tensor = trainer._get_per_token_logps_and_entropies(model, ids, mask, width)[0]
    return found


if __name__ == "__main__":
    main()
