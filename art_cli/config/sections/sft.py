"""The section `sft`: supervised fine-tuning before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from art_cli.config.rule import clash
from art_cli.config.values import Count, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTConfig:
    """Supervised fine-tuning on the assistant tokens of demonstrations before the first step."""

    demonstrations: str = "env"
    """`env` for the env's own demonstrations, or a JSONL file of chat conversations."""
    num_demonstrations: Count = 1000
    """The most demonstrations to read."""
    epochs: Count = 1
    """The number of passes over the demonstrations."""
    batch_size: Count = 16
    """Conversations per optimizer step."""
    learning_rate: Positive = 2.0e-5
    """The learning rate of SFT. `train.learning_rate` is that of GRPO."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """The optimizer. muon learns faster from random weights, such as those of `tiny`."""
    weights: Literal["auto", "all", "adapter"] = "auto"
    """The weights that are trained. auto: the adapter if there is one, else all. `model.base: tiny`
    always trains all: what a random model lacks cannot be learnt through an adapter."""


SFT_RULES = (
    clash(
        {"sft.weights": "adapter", "model.adapter": None},
        "is adapter, but model.adapter is null; remove it, or write all",
    ),
    clash(
        {"sft.weights": "adapter", "model.base": "tiny"},
        "is adapter, but a random model (model.base=tiny) cannot be taught through an adapter; "
        "remove it",
    ),
)
