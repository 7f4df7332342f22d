from __future__ import annotations

import math
from pathlib import Path

import pytest

from art_cli.errors import UsageError
from art_cli.training.algorithm.advantage import (
    ADVANTAGES,
    has_gradient,
    set_advantages,
    teaches,
    try_advantage,
)
from art_cli.types import Scenario, Sequence, Trajectory, TrajectoryGroup

GROUPS = [[1.0, 2.0, 6.0], [0.5, 0.5]]  # means 3 and 0.5
CREDIT = Path(__file__).parents[4] / "configs" / "lab" / "credit.py"
SCENARIO = Scenario(id="s", split="train", seed=0, data={})


def advantages(rewards: list[list[float]], kind: str) -> list[list[float]]:
    groups = [TrajectoryGroup([trajectory(r) for r in group]) for group in rewards]
    return ADVANTAGES[kind](groups)  # type: ignore[return-value]


def trajectory(reward: float | None, turns: int = 1) -> Trajectory:
    sequence = Sequence(
        ids=[1, *[2, 3] * turns],
        mask=[0, *[1, 0] * turns],
        engine_logprobs=[0.0] * (1 + 2 * turns),
        begins=[1 + 2 * i for i in range(turns)],
    )
    return Trajectory(scenario=SCENARIO, reward=reward, sequences=[sequence])


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
    first = [trajectory(r) for r in (1.0, None, 2.0, 6.0)]
    second = [trajectory(r) for r in (None, 0.5, 1.5)]
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


def own(folder: Path, body: str) -> str:
    file = folder / "mine.py"
    file.write_text(f"import math\n\n\ndef credit(groups):\n    return {body}\n")
    return f"{file}:credit"


def test_a_function_of_ones_own_may_give_each_turn_its_own(tmp_path: Path) -> None:
    group = TrajectoryGroup([trajectory(1.0, turns=2), trajectory(None), trajectory(1.0)])
    set_advantages([group], own(tmp_path, "[[[0.5, -1.5], 2]]"))
    first, failed, last = group.trajectories
    assert (first.turn_advantages, first.advantage) == ([0.5, -1.5], -0.5)
    assert (last.turn_advantages, last.advantage) == ([], 2.0)
    assert failed.advantage is None and teaches(group)
    set_advantages([group], "mean")  # nothing is left of the former
    assert first.turn_advantages == [] and first.advantage == 0.0 and not teaches(group)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("None", "NoneType, expected a list, for 1 groups"),
        ("[[1.0], [2.0]]", "2 entries for 1 groups"),
        ("[[1.0]]", "1 entries for a group of 2 trajectories"),
        ("[[1.0, [1.0]]]", "1 entries for a trajectory with 2 sampled turns"),
        ("[[1.0, math.nan]]", "nan as an advantage"),
        ("[[1.0, 'x']]", "str, expected a list, for a trajectory with 2"),
        ("groups[3]", r"mine.py:5: IndexError"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(tmp_path: Path, body: str, told: str) -> None:
    group = TrajectoryGroup([trajectory(1.0, 2), trajectory(0.0, 2)])
    with pytest.raises(UsageError, match=f"train.advantage: .*mine.py.*{told}"):
        set_advantages([group], own(tmp_path, body))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("[[1.0] for g in groups]", "1 entries for a group of 4 trajectories"),
        ("[[[r] for r in g.rewards] for g in groups]", "1 entries for a trajectory with 3 sampled"),
        ("[[math.inf * r for r in g.rewards] for g in groups]", "inf as an advantage"),
        ("[[r / max(g.rewards) for r in g.rewards] for g in groups]", "ZeroDivisionError"),
        ("[[1.0] * len(g.reward) for g in groups]", "has no attribute 'reward'"),
        ("[rewardz for g in groups]", "NameError: name 'rewardz'"),
    ],
)
def test_before_anything_is_sampled_it_is_tried_on_made_up_groups(
    tmp_path: Path, body: str, told: str
) -> None:
    with pytest.raises(UsageError, match=f"train.advantage: .*mine.py.*{told}"):
        try_advantage(own(tmp_path, body))


@pytest.mark.parametrize(
    "body",
    [
        "[[t.metrics['lines'] for t in g.valid] for g in groups]",
        "[[t.reward * t.metrics.get('lines') for t in g.valid] for g in groups]",
        "[[t.reward for t in g.valid if t.scenario.data.get('level').lower()] for g in groups]",
    ],
)
def test_what_only_an_env_gives_is_no_mistake_where_it_is_missing(
    tmp_path: Path, body: str
) -> None:
    doubt = try_advantage(own(tmp_path, body))
    assert doubt and "mine.py:5: " in doubt and "only your env gives" in doubt


def test_a_signature_that_takes_no_groups_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("def credit(group, rewards):\n    return []\n")
    with pytest.raises(UsageError, match="missing 1 required positional argument"):
        try_advantage(f"{file}:credit")


@pytest.mark.parametrize(
    "name", [*ADVANTAGES, *(f"{CREDIT}:{n}" for n in ("turn_credit", "max_rl"))]
)
def test_what_comes_along_takes_the_made_up_groups(name: str) -> None:
    assert try_advantage(name) is None
