"""The interface of trainers: `GRPOTrainer` in this process, `RanksTrainer` on several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torch import Tensor

from art_cli.config.sections.train import TrainConfig
from art_cli.training.algorithm.advantage import teaches
from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.budget import TokenBudget
from art_cli.types import TrajectoryGroup

RATIOS = "loss/clip_fraction", "loss/ratio_mean", "loss/ratio_max"
LARGEST = "loss/grad_norm", "loss/update_kl"
SHORTENED = "loss/shortened"
TOKENS = "data/tokens_trained", "data/tokens_packed"


class Trainer(Protocol):
    """Interface of an object that updates the policy."""

    budget: TokenBudget

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Update the policy with groups that have their advantages. Return metrics.

        `step` counts from 0. Raises EngineError, TrainerError.
        """
        ...

    def logprobs(self, sequence: TrainSequence) -> Tensor:
        """Return the policy's log-probabilities of the sequence's sampled tokens, at the sampling
        temperature: shape [T], on the CPU. Raises TrainerError.
        """
        ...

    def save(self, file: Path) -> None:
        """Write the optimizer's state, in one format for any number of ranks. Raises OSError."""
        ...

    def close(self) -> None:
        """Stop any processes that the trainer started."""
        ...

    def load(self, file: Path) -> None:
        """Load the state that `save` wrote. The policy's present weights stay."""
        ...


Update = Callable[[], dict[str, float]]


def take_updates(
    groups: list[TrajectoryGroup],
    cfg: TrainConfig,
    update_with: Callable[[list[TrajectoryGroup]], Update],
) -> dict[str, float]:
    """Run all updates of one batch. Return the merged metrics.

    Each pass over the batch (mu of GRPO, 2402.03300) makes one update per minibatch (1707.06347).
    All updates after the first are off-policy: their ratio is relative to the policy that sampled.

    Merging: `loss/*` is from the first update, ratio metrics from the last. Gradient norm and KL
    are the maximum, token counts the sum, and `loss/shortened` the mean over all updates.
    """
    updates = [update_with(part) for part in minibatches(groups, cfg.num_minibatches)]
    each = [update() for _ in range(cfg.num_iterations) for update in updates]
    taken = [metrics for metrics in each if metrics["data/tokens_trained"]]
    tokens = {name: sum(metrics[name] for metrics in taken) for name in TOKENS}
    if not taken:
        return tokens
    first, last = taken[0], taken[-1]
    whole = first | {name: last[name] for name in RATIOS} | tokens
    whole |= {name: max(m[name] for m in taken) for name in LARGEST if name in first}
    if SHORTENED in first:
        whole[SHORTENED] = sum(metrics[SHORTENED] for metrics in taken) / len(taken)
    return whole


def minibatches(groups: list[TrajectoryGroup], num: int) -> list[list[TrajectoryGroup]]:
    """Split the groups into at most `num` parts with about equally many that have a gradient.

    If few groups have one, there are fewer parts. An update with too few of them is so noisy that
    it can destroy a policy (observed: held-out reward fell from 0.84 to 0.38 in one batch).
    """
    order = sorted(groups, key=lambda group: not teaches(group))
    num = min(num, len(groups)) * sum(map(teaches, groups)) // max(1, len(groups)) or 1
    return [order[i::num] for i in range(num)]
