"""Load balance of the routers of a mixture of experts during an update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from art_cli.errors import UsageError
from art_cli.models.routing import Routed, Routers
from art_cli.training.algorithm.load_balance import Load, balance_loss
from art_cli.training.algorithm.packing import Microbatch
from art_cli.training.trainers.forward import Forward

AllRanks = Callable[[Tensor], Tensor]  # the sum of a tensor over all ranks


def check_router(model: Any, coef: float) -> None:
    """Raise UsageError if `train.router_aux_loss_coef` would have no effect."""
    if coef and not len(Routers(model)):
        raise UsageError(
            f"train.router_aux_loss_coef: has no effect: {type(model).__name__} has no router; "
            "remove it"
        )


class RouterLoad:
    """Records the routers' choices in the microbatches of a step, and adds the balancing loss."""

    def __init__(self, model: Any, coef: float) -> None:
        self._routers = Routers(model)
        self._coef = coef if len(self._routers) else 0.0
        self._whole: Load | None = None
        self._said: list[list[Routed]] = []

    @property
    def has_any(self) -> bool:
        """True if the model has routers."""
        return len(self._routers) > 0

    @torch.no_grad()
    def begin(
        self, forward: Forward, batches: Iterable[Microbatch], all_ranks: AllRanks | None
    ) -> None:
        """Count the load of the whole step by an extra forward pass, if it has a balancing loss."""
        self._whole = None
        if not self._coef:
            return
        for batch in batches:
            with self.watch():
                forward(batch)
            load = Load.of(self._said, _as_read(batch, self._said))
            self._whole = load if self._whole is None else self._whole + load
        if all_ranks and self._whole:
            self._whole = Load(all_ranks(self._whole.counts), all_ranks(self._whole.tokens))

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record the routers' outputs of the forward pass inside this context."""
        with self._routers.watched() as said:
            yield
        self._said = said

    def add_to(self, loss: Tensor, batch: Microbatch) -> tuple[Tensor, float, Load | None]:
        """Add the balancing loss to the loss of the microbatch that was watched last.

        Return (sum, balancing loss alone, load). Without a coefficient, nothing is added.
        """
        said, self._said = self._said, []
        if not said:
            return loss, 0.0, None
        repeats = _as_read(batch, said)
        load = Load.of(said, repeats)
        if self._whole is None:
            return loss, 0.0, load
        part = balance_loss(said, repeats, self._whole)
        return loss + self._coef * part, float(part.detach()), load


def _as_read(batch: Microbatch, said: list[list[Routed]]) -> Tensor:
    """Return the number of times each token counts, in the order in which the routers saw them."""
    if len(said[0]) == 1:
        return batch.repeats
    nodes = (batch.repeats[s.first : s.first + s.num] for s in batch.layout.spans)
    return torch.cat(list(nodes))
