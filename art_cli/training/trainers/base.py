"""What a trainer is to the loop: `GRPOTrainer` in this process, `RanksTrainer` on several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.budget import TokenBudget
from art_cli.types import TrajectoryGroup

RATIOS = "loss/clip_fraction", "loss/ratio_mean", "loss/ratio_max"
TOKENS = "data/tokens_trained", "data/tokens_packed"


class Trainer(Protocol):
    """Updates the policy."""

    budget: TokenBudget

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Update the policy with groups that have their advantages; return metrics.

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


def repeated(update: Callable[[], dict[str, float]], num: int) -> dict[str, float]:
    """Take `num` updates with one batch (mu of GRPO, 2402.03300), and return the metrics.

    All but the first are off-policy: their ratio is against what was sampled. `loss/*` is of the
    first, but what tells of the ratio is of the last; tokens are those of all.
    """
    metrics = update()
    for _ in range(num - 1 if metrics["data/tokens_trained"] else 0):
        last = update()
        metrics |= {name: last[name] for name in RATIOS}
        metrics |= {name: metrics[name] + last[name] for name in TOKENS}
    return metrics
