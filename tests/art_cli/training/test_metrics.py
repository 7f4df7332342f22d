from __future__ import annotations

import math

import pytest

from art_cli.training.metrics import batch_metrics, ci95, env_metrics, reward_metrics
from art_cli.types import Scenario, Sequence, Step, Trajectory, TrajectoryGroup

SCENARIO = Scenario(id="train-0", split="train", seed=0)


def played(reward: float | None, sampled: int = 2, forks: int = 0, **kwargs: object) -> Trajectory:
    sequence = Sequence(ids=[0] * (1 + sampled), mask=[0] + [1] * sampled)
    return Trajectory(
        scenario=SCENARIO,
        sequences=[sequence] * (1 + forks),
        reward=reward,
        policy_versions=[0] * 3,
        steps=[Step(turn=turn, said="a") for turn in range(3)],
        **kwargs,  # type: ignore[arg-type]
    )


def group(*trajectories: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(list(trajectories))


def test_failed_trajectories_are_counted_but_are_not_a_reward_of_zero() -> None:
    metrics = batch_metrics(
        [group(played(1.0), played(None)), group(played(0.0), played(None))], step=0
    )
    assert metrics["train/reward"] == 0.5 and metrics["train/reward_std"] == 0.5
    assert metrics["data/trajectories"] == 4 and metrics["data/trajectories_failed"] == 2


def test_groups_without_a_gradient_are_counted() -> None:
    equal, unequal = group(played(1.0), played(1.0)), group(played(1.0), played(0.0))
    metrics = batch_metrics([equal, unequal, equal], step=0)
    assert metrics["data/groups"] == 3 and metrics["data/groups_zero_variance"] == 2


def test_forks_truncations_and_sampled_tokens_are_counted() -> None:
    trajectories = [played(1.0, sampled=3, forks=2), played(0.0, truncated=True)]
    metrics = batch_metrics([group(*trajectories)], step=0)
    assert metrics["data/forks"] == 2 and metrics["data/truncated"] == 1
    assert metrics["data/tokens_sampled"] == 9 + 2
    assert metrics["train/tokens"] == 5.5 and metrics["train/turns"] == 3


def test_a_metric_is_averaged_over_those_that_have_it() -> None:
    trajectories = [played(1.0, metrics={"moves": 4.0}), played(1.0, metrics={"moves": 2.0})]
    assert env_metrics([*trajectories, played(0.0)]) == {"moves": 3.0}


def test_a_batch_that_failed_entirely_has_counts_and_no_reward() -> None:
    metrics = batch_metrics([group(played(None))], step=0)
    assert metrics["data/trajectories_failed"] == 1
    assert "train/reward" not in metrics and reward_metrics("val", []) == {}


def test_an_envs_metric_does_not_take_the_place_of_the_reward() -> None:
    metrics = reward_metrics("train", [played(1.0, metrics={"reward": 99.0, "tokens": 99.0})])
    assert metrics["train/reward"] == 1.0 and metrics["train/tokens"] == 2


def test_ci95_is_196_standard_errors() -> None:
    assert ci95([0.0, 1.0, 0.0, 1.0]) == pytest.approx(1.96 * math.sqrt(1 / 3) / 2)
    assert math.isnan(ci95([1.0])) and ci95([2.0, 2.0]) == 0


def test_staleness_is_how_many_updates_the_sampling_weights_were_behind() -> None:
    young, old = played(1.0), played(0.0)
    young.policy_versions, old.policy_versions = [5, 5], [3, 4]
    assert batch_metrics([group(young, old)], step=5)["data/staleness"] == (0 + 0 + 2 + 1) / 4


def test_crashes_are_a_share_of_all_episodes_that_could_crash() -> None:
    outcomes = [(1.0, 0.0), (0.0, 1.0), (None, 1.0), (0.5, 0.0)]
    batch = [group(*(played(r, metrics={"crashed": c}) for r, c in outcomes))]
    metrics = batch_metrics(batch, step=0)
    assert metrics["train/crashed"] == 0.5 and metrics["data/crashed"] == 2
    assert "train/crashed" not in batch_metrics([group(played(1.0))], step=0)


def test_a_full_context_is_not_a_turn_that_was_cut_off() -> None:
    full = played(0.0, truncated=True, stop_reason="context")
    metrics = batch_metrics([group(played(1.0, truncated=True), full)], step=0)
    assert metrics["data/truncated"] == 1 and metrics["data/context_full"] == 1
