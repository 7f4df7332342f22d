"""pass^k in closed form, and intervals that hold the truth as often as they say."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from art_cli.evaluation.statistics import Estimate, difference, mean, pass_hat


def test_pass_hat_is_the_share_of_all_choices_of_k_trials_that_passed() -> None:
    outcomes = [True, True, True, False, False]
    for k in range(1, 6):
        chosen = [all(c) for c in itertools.combinations(outcomes, k)]
        assert pass_hat(3, 5, k) == pytest.approx(sum(chosen) / len(chosen))


def test_pass_hat_is_unbiased() -> None:
    p, trials, k = 0.7, 6, 3
    chances = [math.comb(trials, c) * p**c * (1 - p) ** (trials - c) for c in range(trials + 1)]
    expected = sum(w * pass_hat(c, trials, k) for c, w in enumerate(chances))
    assert expected == pytest.approx(p**k)


HARD, EASY = (lambda rng, n: rng.beta(1, 4, n)), (lambda rng, n: np.full(n, 0.98))
MIXED = lambda rng, n: np.where(rng.random(n) < 0.3, 0.95, 0.1)  # noqa: E731


@pytest.mark.slow
@pytest.mark.parametrize(
    ("difficulty", "scenarios", "k", "truth"),
    [
        (HARD, 100, 1, 0.2),
        (HARD, 50, 4, 1 / 70),  # E[p^4] of Beta(1, 4): the plain bootstrap holds it in half
        (MIXED, 50, 1, 0.3 * 0.95 + 0.7 * 0.1),
        (MIXED, 100, 4, 0.3 * 0.95**4 + 0.7 * 0.1**4),
    ],
)
def test_95_percent_intervals_hold_the_truth_in_93_to_97_percent_of_2000_draws(
    difficulty: object, scenarios: int, k: int, truth: float
) -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(2000):
        passed = rng.binomial(4, difficulty(rng, scenarios))  # type: ignore[operator]
        found = mean([pass_hat(int(c), 4, k) for c in passed], share=True)
        assert found
        held += found.low <= truth <= found.high
    assert 0.93 <= held / 2000 <= 0.97


def test_intervals_of_differences_hold_the_truth(draws: int = 2000) -> None:
    rng, held, scenarios = np.random.default_rng(1), 0, 60
    for _ in range(draws):
        easy = rng.beta(2, 2, scenarios)
        names = [str(n) for n in range(scenarios)]
        ours, theirs = (rng.binomial(4, p) / 4 for p in (easy, 0.8 * easy))
        found = difference(
            dict(zip(names, ours, strict=True)), dict(zip(names, theirs, strict=True)), share=True
        )
        assert found
        held += found.low <= 0.1 <= found.high
    assert 0.93 <= held / draws <= 0.97


def test_an_interval_is_honest_where_nothing_failed() -> None:
    found = mean([1.0] * 30, share=True)
    assert found and found.value == found.high == 1.0
    assert 0.85 < found.low < 0.97  # 3 in 30 may well fail
    same = {str(n): 1.0 for n in range(30)}
    gap = difference(same, same, share=True)
    assert gap and gap.value == 0 and gap.low < 0 < gap.high and not gap.excludes_zero


def test_a_difference_is_paired() -> None:
    ours = {str(n): float(n) + 1 for n in range(40)} | {"only ours": 1e6}
    gap = difference(ours, {str(n): float(n) for n in range(40)})
    assert gap == Estimate(1.0, 1.0, 1.0) and gap.excludes_zero
    assert difference({"a": 1.0}, {"b": 1.0}) is None


def test_one_scenario_says_nothing_of_others() -> None:
    assert mean([]) is None
    assert mean([2.0]) == Estimate(2.0, -math.inf, math.inf)
    found = mean([1.0], share=True)
    assert found and (found.low, found.value, found.high) == (0.0, 1.0, 1.0)


def test_the_same_values_give_the_same_interval() -> None:
    values = [n / 7 for n in range(20)]
    assert mean(values) == mean(values)
    assert mean(values) == mean(list(values))
