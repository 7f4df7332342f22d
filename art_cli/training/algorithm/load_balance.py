"""Auxiliary loss that balances the load of the experts in a mixture of experts.

Switch Transformer (2101.03961, eq. 4 to 6), for a choice of k experts, as a mean over the layers:

    loss = mean_l E sum_e f_le P_le      f_le: share of all choices that fell on expert e
                                         P_le: mean over tokens of softmax(router logits)_e

The loss is 1 if all experts are used equally. f has no gradient. It is counted over the whole step
first. The rest is a sum over tokens, so a step may be split into microbatches in any way:

    loss = sum_t mean_l E sum_e f_le softmax(router logits)_lte / N

A token that siblings share counts once for each of them, wherever it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from art_cli.models.routing import Routed


@dataclass(frozen=True, slots=True)
class Load:
    """Counts of each expert's choices, and of the tokens."""

    counts: Tensor  # [layers, experts] float64
    tokens: Tensor  # [] float64

    @classmethod
    def of(cls, said: list[list[Routed]], repeats: Tensor) -> Load:
        """Count the routers' choices. Token n counts `repeats[n]` times."""
        weights = repeats.double()
        rows = [
            torch.zeros(
                _joined(layer).shape[1], dtype=torch.float64, device=weights.device
            ).index_add(0, chosen.flatten(), weights.repeat_interleave(chosen.shape[1]))
            for layer in said
            for chosen in [torch.cat([r.chosen for r in layer])]
        ]
        return cls(torch.stack(rows).cpu(), weights.sum().cpu())

    def __add__(self, other: Load) -> Load:
        return Load(self.counts + other.counts, self.tokens + other.tokens)

    @property
    def fractions(self) -> Tensor:
        """The share f of each expert in the choices of each layer, shape [layers, experts]."""
        return self.counts / self.counts.sum(1, keepdim=True).clamp(min=1)

    @property
    def imbalance(self) -> float:
        """The most used expert's share over the mean share, as a mean over layers."""
        return float((self.fractions.amax(1) * self.counts.shape[1]).mean())


def balance_loss(said: list[list[Routed]], repeats: Tensor, whole: Load) -> Tensor:
    """Return these tokens' part of the balancing loss of a step whose total load is `whole`."""
    weights = repeats.float() / whole.tokens.item()
    fractions = whole.fractions.to(weights.device, torch.float32)
    by_layer = [
        weights @ (_joined(layer).float().softmax(-1) @ f) * len(f)
        for layer, f in zip(said, fractions, strict=True)
    ]
    return torch.stack(by_layer).mean()


def _joined(layer: list[Routed]) -> Tensor:
    return torch.cat([r.logits for r in layer])
