"""Metrics of a batch of trajectories, as pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from art_cli.training.algorithm.advantage import has_gradient
from art_cli.types import Trajectory, TrajectoryGroup


def reward_metrics(prefix: str, trajectories: list[Trajectory]) -> dict[str, float]:
    """Return `<prefix>/reward` and the env's metrics, over trajectories that have a reward."""
    valid = [t for t in trajectories if t.reward is not None]
    crashes = [t.metrics["crashed"] for t in trajectories if "crashed" in t.metrics]
    if not valid:
        return {f"{prefix}/crashed": statistics.fmean(crashes)} if crashes else {}
    rewards = [t.reward for t in valid if t.reward is not None]
    out = {f"{prefix}/{k}": v for k, v in env_metrics(valid).items()}
    if crashes:  # over all trajectories: a crash may have no reward
        out[f"{prefix}/crashed"] = statistics.fmean(crashes)
    out[f"{prefix}/reward"] = statistics.fmean(rewards)
    out[f"{prefix}/turns"] = statistics.fmean(t.num_turns for t in valid)
    out[f"{prefix}/tokens"] = statistics.fmean(t.num_sampled for t in valid)
    return out


def env_metrics(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Return the mean of each metric over the trajectories that have it."""
    values: dict[str, list[float]] = {}
    for t in trajectories:
        for name, value in t.all_metrics.items():
            values.setdefault(name, []).append(value)
    return {name: statistics.fmean(v) for name, v in values.items()}


def batch_metrics(groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
    """Return `train/*` and `data/*` of the batch that the update of version `step` trains on."""
    trajectories = [t for g in groups for t in g.trajectories]
    by_group = [g.rewards for g in groups]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    out = reward_metrics("train", trajectories)
    if rewards:
        out["train/reward_std"] = statistics.pstdev(rewards)
    crashes = [t.metrics["crashed"] for t in trajectories if "crashed" in t.metrics]
    if crashes:
        out["data/crashed"] = sum(crashes)
    ages = [step - version for t in trajectories for version in t.policy_versions]
    return out | {
        "data/staleness": statistics.fmean(ages) if ages else 0.0,  # versions, mean over turns
        "data/groups": len(groups),
        "data/groups_zero_variance": sum(not has_gradient(r) for r in by_group if r),
        "data/trajectories": len(trajectories),
        "data/trajectories_failed": sum(t.reward is None for t in trajectories),
        "data/truncated": sum(t.truncated and t.stop_reason != "context" for t in trajectories),
        "data/context_full": sum(t.stop_reason == "context" for t in trajectories),
        "data/forks": sum(max(0, len(t.sequences) - 1) for t in trajectories),
        "data/tokens_sampled": sum(t.num_sampled for t in trajectories),
    }


def ci95(values: list[float]) -> float:
    """Return half the width of the mean's 95% confidence interval, by the normal approximation."""
    if len(values) < 2:
        return math.nan
    return 1.96 * statistics.stdev(values) / math.sqrt(len(values))
