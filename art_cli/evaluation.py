"""How good is the policy on scenarios that training never saw."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from art_cli.gather import gather_trajectory_groups, scenarios_of
from art_cli.metrics import ci95, reward_metrics
from art_cli.model import Report, TrainableModel, silent
from art_cli.types import Split, TrajectoryGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Means over the episodes that have a reward."""

    split: Split
    step: int
    episodes: int
    failed: int
    reward: float
    ci: float  # half the width of the reward's 95% confidence interval
    metrics: dict[str, float]  # the env's own, turns and tokens; success among them
    groups: list[TrajectoryGroup]

    def log_row(self) -> dict[str, float]:
        """As a line of metrics.jsonl."""
        row = {"training_step": self.step, "val/reward": self.reward, "val/reward_ci": self.ci}
        return row | {f"val/{k}": v for k, v in self.metrics.items()}


async def evaluate(
    model: TrainableModel,
    *,
    split: Split = "val",
    episodes: int = 64,
    report: Report = silent,
) -> Evaluation:
    """One episode of each of the first `episodes` scenarios of a split (fewer if it has fewer).

    Raises EngineError, EnvError.
    """
    scenarios = scenarios_of(model, split)[:episodes]
    groups = await gather_trajectory_groups(
        model, scenarios, group_size=1, purpose="eval", report=report
    )
    trajectories = [t for g in groups for t in g.trajectories]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    metrics = {k.removeprefix("val/"): v for k, v in reward_metrics("val", trajectories).items()}
    metrics.pop("reward")
    return Evaluation(
        split=split,
        step=model.step,
        episodes=len(trajectories),
        failed=len(trajectories) - len(rewards),
        reward=statistics.fmean(rewards),
        ci=ci95(rewards),
        metrics=metrics,
        groups=groups,
    )
