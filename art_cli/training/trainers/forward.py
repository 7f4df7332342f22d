"""Forward pass from a microbatch to its loss, as one call of one module."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from art_cli.chat.grammar.grammars import Grammars
from art_cli.models.forward.attention import Layout
from art_cli.models.forward.head import Head
from art_cli.models.forward.ways import Ways
from art_cli.training.algorithm.logprobs import Objective, chosen_logprobs, head_loss
from art_cli.training.algorithm.packing import Microbatch


class Trainable(Protocol):
    """Interface of a policy that a trainer updates: `Policy`, or one rank's shard of it."""

    @property
    def model(self) -> nn.Module:
        """The base with its adapter."""
        ...

    ways: Ways
    grammars: Grammars

    @property
    def head(self) -> Head:
        """The module that computes logits from hidden states."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the head's weights."""
        ...

    @property
    def device(self) -> torch.device:
        """The device that microbatches must be on."""
        ...

    @property
    def trainable(self) -> list[nn.Parameter]:
        """The parameters that the optimizer changes."""
        ...

    def hidden(
        self,
        ids: Tensor,
        positions: Tensor,
        layout: Layout | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """See `Policy`."""
        ...

    def as_reference(self) -> AbstractContextManager[None]:
        """Use the weights of step 0 within this context."""
        ...


class Forward(nn.Module):
    """Forward pass as a module, so that FSDP can gather the head's weights for the whole pass."""

    def __init__(self, policy: Trainable, temperature: float) -> None:
        super().__init__()
        self.model = policy.model
        self._policy = policy
        self._temperature = temperature

    def forward(
        self, batch: Microbatch, objective: Objective | None = None, by_row: bool = True
    ) -> Any:
        """Return (loss, log-probabilities [S]), see `head_loss`. Without `objective`: only [S]."""
        policy = self._policy
        hidden = policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)
        head, ids, allowed = policy.head, batch.targets, batch.allowed
        if objective is None:
            return chosen_logprobs(hidden, head, ids, self._temperature, allowed)
        return head_loss(hidden, head, ids, self._temperature, objective, by_row, allowed)
