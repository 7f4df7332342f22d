"""What a trainer is to the loop: `GRPOTrainer` in this process, `RanksTrainer` on several."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from torch import Tensor

from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.budget import TokenBudget
from art_cli.types import TrajectoryGroup


class Trainer(Protocol):
    """Updates the policy."""

    budget: TokenBudget

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Update the policy once with groups that have their advantages; return metrics.

        `step` counts from 0. Raise EngineError, TrainerError.
        """
        ...

    def logprobs(self, sequence: TrainSequence) -> Tensor:
        """The policy's log-probabilities of the sequence's sampled tokens, at the temperature of
        sampling: [T], on the CPU. Raises TrainerError."""
        ...

    def save(self, file: Path) -> None:
        """Write the optimizer's state, the same whatever shares the work. Raises OSError."""
        ...

    def close(self) -> None:
        """End what it has started."""
        ...

    def load(self, file: Path) -> None:
        """Go on from what `save` wrote, with the policy's present weights."""
        ...
