"""TRL's side of `gpu.py`: the update of its GRPOTrainer on given trajectories, without rollouts."""

from __future__ import annotations

import time
from typing import Any

import torch
from datasets import Dataset  # pyright: ignore[reportMissingImports]
from peft import LoraConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import GRPOConfig, GRPOTrainer  # pyright: ignore[reportMissingImports]

from art_cli.types import TrajectoryGroup


class GivenTrainer(GRPOTrainer):
    """A trainer that does not generate: each step trains on the same batch."""

    given: dict[str, torch.Tensor]

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, torch.Tensor]:
        return dict(self.given)


class _Laps(TrainerCallback):
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        _wait()
        self._began = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        _wait()
        self.seconds.append(time.perf_counter() - self._began)


def measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    groups: list[TrajectoryGroup],
    *,
    rank: int,
    rows_at_once: int,
    checkpointing: bool,
    steps: int,
    folder: str,
) -> tuple[float, float | None]:
    """Return (median seconds of a step, peak GB)."""
    on_gpu = model.device.type == "cuda"
    num = sum(len(g.trajectories) for g in groups)
    config = GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=rows_at_once,
        gradient_accumulation_steps=num // rows_at_once,
        num_generations=len(groups[0].trajectories),
        loss_type="dapo",
        beta=0.0,
        learning_rate=1e-6,
        max_steps=steps + 2,
        bf16=on_gpu,
        use_cpu=not on_gpu,
        gradient_checkpointing=checkpointing,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        logging_steps=1000,
    )
    trainer = GivenTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "x"}] * num * (steps + 2)),
        processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        peft_config=LoraConfig(
            r=rank, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    )
    trainer.given = {k: v.to(model.device) for k, v in batch_of(groups).items()}
    laps = _Laps()
    trainer.add_callback(laps)
    trainer.remove_callback(PrinterCallback)
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    memory = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None
    return sorted(laps.seconds[2:])[steps // 2], memory


def batch_of(groups: list[TrajectoryGroup]) -> dict[str, torch.Tensor]:
    """Return the batch padded as in TRL: prompts on the left, completions on the right."""
    sequences = [t.sequences[0] for g in groups for t in g.trajectories]
    starts = [s.mask.index(1) for s in sequences]
    widest = max(starts)
    longest = max(len(s.ids) - n for s, n in zip(sequences, starts, strict=True))

    def right(values: list[Any]) -> list[Any]:
        return values + [0] * (longest - len(values))

    pairs = list(zip(sequences, starts, strict=True))
    made = {
        "prompt_ids": [[0] * (widest - n) + s.ids[:n] for s, n in pairs],
        "prompt_mask": [[0] * (widest - n) + [1] * n for _, n in pairs],
        "completion_ids": [right(s.ids[n:]) for s, n in pairs],
        "completion_mask": [right([1] * (len(s.ids) - n)) for s, n in pairs],
        "tool_mask": [right(s.mask[n:]) for s, n in pairs],
        "old_per_token_logps": [right(s.engine_logprobs[n:]) for s, n in pairs],
    }
    tensors = {key: torch.tensor(rows) for key, rows in made.items()}
    tensors["advantages"] = torch.tensor([t.advantage for g in groups for t in g.valid])
    tensors["num_items_in_batch"] = tensors["tool_mask"].sum()
    return tensors


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
