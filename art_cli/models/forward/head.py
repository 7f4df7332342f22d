"""The output embedding and its scaling, which turn hidden states into logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from art_cli.models.forward.products import product


@dataclass(frozen=True, slots=True)
class Head:
    """Computes logits = cap * tanh(scale * (hidden @ weight.T + bias) / cap). No cap: no tanh."""

    weight: nn.Parameter  # [V, D]
    bias: nn.Parameter | None = None  # [V]
    scale: float = 1.0
    cap: float | None = None

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [..., V], in fp32, of hidden states [..., D]."""
        logits = product(hidden, self.weight, self.bias).float()
        if self.scale != 1:
            logits = logits * self.scale
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)

    def slope(self, logits: Tensor) -> Tensor | float:
        """Return the derivative of these logits with respect to hidden @ weight.T + bias."""
        if self.cap is None:
            return self.scale
        return self.scale * (1 - (logits / self.cap).square())


def head_of(model: Any) -> Head:
    """Return the head of a causal language model.

    Families store scale and cap under different config names. The check at load time compares the
    result with the model's own logits.
    """
    config = model.config.get_text_config()
    embedding = model.get_output_embeddings()
    scale = 1.0
    if (divisor := getattr(config, "logits_scaling", None)) is not None:  # Granite
        scale = 1 / divisor
    for name in ("logit_scale", "lm_head_multiplier"):  # Cohere, Falcon-H1
        if (factor := getattr(config, name, None)) is not None:
            scale = float(factor)
    if (width := getattr(config, "dim_model_base", None)) is not None:  # MiniCPM
        scale = width / config.hidden_size
    caps = [getattr(config, n, None) for n in ("final_logit_softcapping", "logits_soft_cap")]
    return Head(
        weight=embedding.weight,
        bias=getattr(embedding, "bias", None),
        scale=scale,
        cap=next((c for c in caps if c), None),  # Gemma, RecurrentGemma
    )
