from __future__ import annotations

import math

import pytest

from art_cli.training.trainers.schedule import factor


def test_constant_is_one_after_a_linear_warm_up() -> None:
    values = [factor("constant", step, 10, 3) for step in range(10)]
    assert values == pytest.approx([0.25, 0.5, 0.75] + [1.0] * 7)


def test_linear_goes_to_zero_behind_the_last_step() -> None:
    values = [factor("linear", step, 4, 0) for step in range(5)]
    assert values == pytest.approx([1, 0.75, 0.5, 0.25, 0])


def test_linear_decays_over_what_the_warm_up_left() -> None:
    values = [factor("linear", step, 6, 2) for step in range(6)]
    assert values == pytest.approx([1 / 3, 2 / 3, 1, 0.75, 0.5, 0.25])


def test_cosine_is_half_way_down_in_the_middle() -> None:
    values = [factor("cosine", step, 4, 0) for step in range(5)]
    assert values == pytest.approx([0.5 * (1 + math.cos(math.pi * s / 4)) for s in range(5)])
    assert values[2] == pytest.approx(0.5) and values[4] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_a_run_within_the_warm_up_takes_the_first_steps_of_a_longer_one(schedule: str) -> None:
    trial = [factor(schedule, step, 5, 10) for step in range(5)]
    assert trial == [factor(schedule, step, 150, 10) for step in range(5)]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_no_step_trains_with_zero_or_backwards(schedule: str) -> None:
    for total, warmup in [(1, 0), (3, 2), (50, 10)]:
        assert all(0 < factor(schedule, s, total, warmup) <= 1 for s in range(total))
        assert factor(schedule, total + 5, total, warmup) >= 0  # a longer run than was planned
