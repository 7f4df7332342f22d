"""A small model with random weights and the architecture of a base's config.json."""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from art_cli.models.classes import class_of
from art_cli.preflight.small_model.config import BROKEN, no_model, shrunk

DECAYS = ("A_log", "dt_bias", "conv1d", ".D", "time_", "recurrent_")  # parts of parameter names


def small_model(config: dict[str, Any], vocab_size: int, seed: int) -> PreTrainedModel:
    """Return a small float32 model of the architecture, determined by the seed.

    Raises UsageError if the config does not describe a language model.
    """
    small = shrunk(config, vocab_size)
    torch.manual_seed(seed)
    try:
        return class_of(small)._from_config(small, dtype=torch.float32).eval()
    except BROKEN as e:
        raise no_model(e) from e


def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the number of embeddings that the tokenizer's ids need. Some ids may be unused."""
    return 1 + max(tokenizer.get_vocab().values())


@torch.no_grad()
def spread(model: PreTrainedModel, seed: int) -> None:
    """Give every weight a different value, large enough to affect the result.

    Initial values are often 0, 1 or identical, so a forward pass that drops a bias or a sink would
    go unnoticed. Decay parameters of recurrences keep the family's values.
    """
    generator = torch.Generator().manual_seed(seed)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    scale = (
        0.2 if tied or "gemma" in str(model.config.model_type) else 1.0
    )  # embeddings are scaled up
    for name, p in model.named_parameters():  # tied weights come once
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
