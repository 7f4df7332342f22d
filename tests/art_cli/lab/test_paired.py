from __future__ import annotations

import math
import random
import statistics

import pytest

from art_cli.lab.paired import interval


def bayes_factor(differences: list[float], mean: float) -> float:
    """Goenen et al. (2005), eq. 5, with a normal prior of variance 1 on the effect size."""
    n = len(differences)
    gap = statistics.fmean(differences) - mean
    t = gap / statistics.stdev(differences) * math.sqrt(n)
    inside = (1 + t * t / (n - 1)) / (1 + t * t / ((n - 1) * (1 + n)))
    return inside ** (n / 2) / math.sqrt(1 + n)


@pytest.mark.parametrize(("num", "error"), [(5, 0.05), (9, 0.05), (16, 0.01), (40, 0.2)])
def test_at_its_ends_the_bayes_factor_is_one_over_the_error(num: int, error: float) -> None:
    rng = random.Random(num)
    differences = [rng.gauss(0.1, 0.3) for _ in range(num)]
    found = interval(differences, error)
    for end in (found.low, found.high):
        assert bayes_factor(differences, end) == pytest.approx(1 / error, rel=1e-9)


@pytest.mark.parametrize("differences", [[0.1], [0.1, 0.2], [0.1, 0.2, 0.15], [0.2] * 30])
def test_too_few_or_all_the_same_bound_nothing(differences: list[float]) -> None:
    assert not interval(differences, 0.05).is_bounded


def test_who_looks_after_every_seed_is_seldom_wrong_and_finds_what_is_there() -> None:
    """Of 1,000 comparisons of the same, at most 5% decide."""

    def decided(effect: float, rng: random.Random) -> bool:
        seen = [rng.gauss(effect, 1.0) for _ in range(24)]
        return any(interval(seen[:n], 0.05).excludes_zero for n in range(2, 25))

    rng = random.Random(0)
    assert sum(decided(0.0, rng) for _ in range(1000)) <= 50
    assert sum(decided(1.5, rng) for _ in range(200)) >= 190
