"""A small model with random weights, of a base's own architecture: made from its config.json."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from art_cli.models.classes import class_of
from art_cli.preflight.small_model.config import BROKEN, no_model, shrunk

DECAYS = ("A_log", "dt_bias", "conv1d", ".D", "time_", "recurrent_")  # parts of names


def small_model(config: dict[str, Any], vocab_size: int, seed: int) -> PreTrainedModel:
    """Return a small model of the architecture in float32; the same for the same seed.

    Raises UsageError where the config makes no language model.
    """
    small = shrunk(config, vocab_size)
    torch.manual_seed(seed)
    try:
        return class_of(small)._from_config(small, dtype=torch.float32).eval()
    except BROKEN as e:
        raise no_model(e) from e


def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many embeddings the tokenizer's ids take: some leave ids out."""
    return 1 + max(tokenizer.get_vocab().values())


@torch.no_grad()
def spread(model: PreTrainedModel, seed: int) -> None:
    """Give every weight a value of its own, wide enough to matter and no wider.

    As they are initialised, many are zero, one or alike: who leaves out a bias or a sink computes
    the same. What recurrences decay by stays as the family makes it.
    """
    generator = torch.Generator().manual_seed(seed)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    scale = 0.2 if tied or "gemma" in str(model.config.model_type) else 1.0  # they scale it up
    for name, p in model.named_parameters():  # a tied one once
        if any(word in name for word in DECAYS):
            continue
        noise = torch.randn(p.shape, generator=generator)
        if p.ndim >= 2:
            p.copy_(noise * (scale if "embed" in name else 1.6 / p.shape[-1] ** 0.5))
        else:
            p.add_(noise * 0.2)
    for name, buffer in model.named_buffers():
        if "e_score_correction_bias" in name or "expert_bias" in name:
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.1)
