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


Update = Callable[[], dict[str, float]]


def take_updates(
    groups: list[TrajectoryGroup],
    cfg: TrainConfig,
    update_with: Callable[[list[TrajectoryGroup]], Update],
) -> dict[str, float]:
    """Take the updates of one batch, and return the metrics.

    One with each of its minibatches (1707.06347), and so in each pass (mu of GRPO, 2402.03300). All
    but the first are off-policy: their ratio is against what was sampled. `loss/*` is of the first,
    but what tells of the ratio is of the last; gradient and step are the largest of all, tokens
    those of all, and `loss/shortened` is a share of all.
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
    """Deal the groups out to `num` parts, those that teach first, so that each has as many of them.

    Where fewer teach, there are fewer parts: an update with less than its share of them is so noisy
    that it may end a policy (seen: held-out reward from 0.84 to 0.38 in a batch).
    """
    order = sorted(groups, key=lambda group: not teaches(group))
    num = min(num, len(groups)) * sum(map(teaches, groups)) // max(1, len(groups)) or 1
    return [order[i::num] for i in range(num)]
