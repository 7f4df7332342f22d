"""How far a judge can be trusted: every statistic against numbers worked out by hand."""

from __future__ import annotations

import pytest

from art_cli.llms.judges.audit import (
    JudgedGroup,
    agreement,
    audit,
    kendall_tau,
    mean_with_ci,
    verdict,
)


def judged(
    *votes: list[float],
    env: list[float | None] | None = None,
    orders: list[list[int]] | None = None,
    lengths: list[int] | None = None,
) -> JudgedGroup:
    num = len(votes[0])
    return JudgedGroup(
        votes=list(votes),
        orders=orders or [list(range(num)) for _ in votes],
        env_rewards=env or [None] * num,
        lengths=lengths or [100] * num,
    )


def test_agreement_counts_pairs_and_half_of_the_ties() -> None:
    # Of the pairs that differ in truth (0 1, 0 2) the first is ordered right, the second tied.
    assert agreement([0.2, 0.9, 0.2], [0.0, 1.0, 1.0]) == pytest.approx(0.75)
    assert agreement([0.9, 0.2], [0.0, 1.0]) == 0.0
    assert agreement([0.9, 0.2], [1.0, 1.0]) is None
    assert agreement([0.9, 0.2, 0.4], [1.0, None, 0.0]) == 1.0


def test_kendalls_tau_b_is_that_of_the_textbook() -> None:
    assert kendall_tau([1, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(1)
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 6 pairs, one tied in x: (4 - 1) / sqrt(5 * 6)
    assert kendall_tau([1, 1, 2, 3], [1, 2, 4, 3]) == pytest.approx(3 / 30**0.5)
    assert kendall_tau([1, 1], [1, 2]) is None


def test_being_shown_first_is_compared_with_the_same_trajectory_shown_later() -> None:
    # Trajectory 0 is worth 0.5 and 1 is worth 0.3; the first gets 0.1 more.
    group = judged([0.6, 0.3], [0.5, 0.4], orders=[[0, 1], [1, 0]])
    gain = audit([group] * 5).first_gain
    assert gain and gain.value == pytest.approx(0.1)
    assert audit([judged([0.6, 0.3])]).first_gain is None  # one vote says nothing


def test_consistency_is_the_share_of_pairs_that_two_votes_order_alike() -> None:
    found = audit([judged([0.1, 0.5, 0.9], [0.1, 0.9, 0.5])]).consistency
    assert found and found.value == pytest.approx(2 / 3)


def test_length_and_ties() -> None:
    found = audit([judged([0.1, 0.5, 0.5], env=[1.0, 0.5, 0.0], lengths=[10, 20, 30])])
    assert found.length_tau and found.length_tau.value == pytest.approx(2 / 6**0.5)
    assert found.env_length_tau and found.env_length_tau.value == pytest.approx(-1)
    assert found.tie_rate and found.tie_rate.value == pytest.approx(1 / 3)


def test_the_interval_holds_the_mean_and_narrows_with_more_groups() -> None:
    few, many = mean_with_ci([0.0, 1.0] * 5), mean_with_ci([0.0, 1.0] * 500)
    assert few and many
    assert few.low < few.value == 0.5 < few.high
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert many.high == pytest.approx(0.5 + 1.96 * 0.5 / 1000**0.5, abs=0.005)
    assert mean_with_ci([]) is None


def test_the_verdict_is_in_plain_words() -> None:
    good = judged([0.9, 0.3, 0.6], [0.8, 0.4, 0.6], env=[1.0, 0.0, 0.5], orders=[[0, 1, 2]] * 2)
    assert verdict(audit([good] * 10))[:2] == [
        "orders 100% [100, 100] of pairs as the env does",
        "orders 100% [100, 100] of pairs the same way when asked again",
    ]
    wrong = judged([0.1, 0.9], env=[1.0, 0.0])
    assert "no better than chance: do not train on it" in " ".join(verdict(audit([wrong] * 10)))
    biased = judged([0.6, 0.3], [0.5, 0.4], orders=[[0, 1], [1, 0]])
    assert "first-listed trajectories gain 0.10" in " ".join(verdict(audit([biased] * 10)))
    longer = judged([0.1, 0.9], env=[1.0, 0.0], lengths=[10, 99])
    assert "prefers long trajectories" in " ".join(verdict(audit([longer] * 10)))
    tied = judged([0.5, 0.5], env=[1.0, 0.0])
    assert "the same score: little to learn from" in " ".join(verdict(audit([tied] * 10)))
