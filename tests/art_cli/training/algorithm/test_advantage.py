from __future__ import annotations

import math

import pytest

from art_cli.training.algorithm.advantage import advantages, has_gradient, set_advantages
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

GROUPS = [[1.0, 2.0, 6.0], [0.5, 0.5]]  # means 3 and 0.5


def test_mean_subtracts_the_group_mean_and_divides_by_nothing() -> None:
    assert advantages(GROUPS, "mean") == [[-2.0, -1.0, 3.0], [0.0, 0.0]]


def test_group_std_divides_by_the_sample_deviation_of_the_group() -> None:
    std = math.sqrt((4 + 1 + 9) / 2)
    first, second = advantages(GROUPS, "group_std")
    assert first == pytest.approx([-2 / std, -1 / std, 3 / std], rel=1e-5)
    assert second == [0.0, 0.0]


def test_batch_std_divides_by_the_deviation_of_all_rewards_of_the_step() -> None:
    everything = [1.0, 2.0, 6.0, 0.5, 0.5]
    std = math.sqrt(sum((r - 2.0) ** 2 for r in everything) / 4)
    first, second = advantages(GROUPS, "batch_std")
    assert first == pytest.approx([-2 / std, -1 / std, 3 / std], rel=1e-5)
    assert second == [0.0, 0.0]


def test_leave_one_out_compares_with_the_mean_of_the_others() -> None:
    first, second = advantages(GROUPS, "leave_one_out")
    assert first == pytest.approx([1 - 4.0, 2 - 3.5, 6 - 1.5])
    assert second == [0.0, 0.0]


def test_each_trajectory_gets_its_own_and_one_without_a_reward_gets_none() -> None:
    scenario = Scenario(id="s", split="train", seed=0, data={})
    first = [Trajectory(scenario=scenario, reward=r) for r in (1.0, None, 2.0, 6.0)]
    second = [Trajectory(scenario=scenario, reward=r) for r in (None, 0.5, 1.5)]
    set_advantages([TrajectoryGroup(first), TrajectoryGroup(second)], "mean")
    assert [t.advantage for t in first + second] == [-2.0, None, -1.0, 3.0, None, -0.5, 0.5]


@pytest.mark.parametrize("kind", ["mean", "group_std", "batch_std", "leave_one_out"])
def test_groups_of_one_and_of_none_have_no_advantage(kind: str) -> None:
    assert advantages([[3.0], []], kind) == [[0.0], []]
    assert advantages([], kind) == []


@pytest.mark.parametrize("kind", ["mean", "group_std", "batch_std", "leave_one_out"])
def test_advantages_of_a_group_sum_to_zero(kind: str) -> None:
    for group in advantages([[0.1, 0.7, 0.3, 0.3], [5.0, -2.0]], kind):
        assert sum(group) == pytest.approx(0, abs=1e-12)


def test_a_near_tie_stays_a_near_tie_with_mean_and_is_blown_up_by_group_std() -> None:
    rewards = [[0.5, 0.5 + 1e-4]]
    assert advantages(rewards, "mean")[0][1] == pytest.approx(5e-5)
    assert advantages(rewards, "group_std")[0][1] == pytest.approx(math.sqrt(0.5), rel=0.02)


def test_rounding_in_equal_rewards_is_not_blown_up() -> None:
    rewards = [0.1 + 0.2, 0.3, 0.3]  # differ in the last bit
    assert not has_gradient(rewards)
    assert max(map(abs, advantages([rewards], "group_std")[0])) < 1e-9


@pytest.mark.parametrize(
    ("rewards", "teaches"),
    [([], False), ([1.0], False), ([2.0, 2.0], False), ([0.0, 1e-3], True), ([-1.0, 1.0], True)],
)
def test_only_unequal_rewards_have_a_gradient(rewards: list[float], teaches: bool) -> None:
    assert has_gradient(rewards) is teaches
