from __future__ import annotations

import pytest

from art_cli.lab.ranking import Optimism, best_of, optimism, ranked
from art_cli.lab.study import TrialRecord


@pytest.mark.parametrize(
    ("num", "expected"), [(2, 0.564), (5, 1.163), (10, 1.539), (20, 1.867), (100, 2.508)]
)
def test_the_largest_of_so_many_normals_is_where_tables_have_it(num: int, expected: float) -> None:
    """Harter (1961), table 1."""
    assert Optimism(num, 1.0, 2).errors == pytest.approx(expected, rel=0.05)
    assert Optimism(num, 0.5, 2).amount == pytest.approx(expected / 2, rel=0.05)


def tried(number: int, value: float | None, *values: float, **more: object) -> TrialRecord:
    return TrialRecord(
        number=number, point={}, value=value, values=values, **{"state": "done", **more}
    )  # pyright: ignore[reportArgumentType]


def test_those_that_ended_come_first_then_those_that_were_stopped_the_latest() -> None:
    trials = [
        tried(0, 0.5),
        tried(1, 0.9, state="stopped", step=10),
        tried(2, None, state="failed"),
        tried(3, 0.7),
        tried(4, 0.2, state="stopped", step=30),
    ]
    assert [t.number for t in ranked(trials)] == [3, 0, 4, 1, 2]
    assert best_of(trials) == trials[3]
    assert best_of(trials[1:3]) is None


def test_the_noise_of_a_trial_is_what_its_seeds_show() -> None:
    """The variances 0.02 and 0.08 have the mean 0.05; half of it is that of a mean of two."""
    trials = [tried(0, 0.4, 0.3, 0.5), tried(1, 0.6, 0.4, 0.8), tried(2, 0.1, state="stopped")]
    found = optimism(trials, ci=9.0)
    assert found == Optimism(3, pytest.approx(0.025**0.5), 2)
    assert optimism([tried(0, 0.4, 0.4), tried(1, 0.5, 0.5)], ci=None) is None
    alone = optimism([tried(0, 0.4, 0.4), tried(1, 0.5, 0.5)], ci=0.196)
    assert alone == Optimism(2, pytest.approx(0.1, rel=1e-3), 1)


def test_a_point_that_was_not_run_again_is_no_trial_more() -> None:
    again = tried(1, 0.4, 0.3, 0.5, same_as=0)
    found = optimism([tried(0, 0.4, 0.3, 0.5), again], ci=None)
    assert found and found.num == 1 and found.amount == pytest.approx(0.0)
