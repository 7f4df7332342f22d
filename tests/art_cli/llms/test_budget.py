"""Money: what a run may spend, over all its starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from art_cli.errors import EXIT_BUDGET, ArtError, BudgetError
from art_cli.llms.base import Budget, Usage


def pay(budget: Budget, *prices: float) -> None:
    for usd in prices:
        budget.settle(budget.reserve(0.0), usd, "openai/x")


def test_the_call_that_would_go_over_is_refused() -> None:
    budget = Budget(1.0)
    pay(budget, 0.3, 0.3, 0.3)
    with pytest.raises(BudgetError, match=r"max_usd=1 is used up: \$0.9000 spent") as raised:
        budget.reserve(0.0)
    assert raised.value.exit_code == EXIT_BUDGET
    assert budget.spent == pytest.approx(0.9)


def test_calls_that_are_under_way_count_as_the_dearest_so_far() -> None:
    budget = Budget(1.0)
    pay(budget, 0.2)
    for _ in range(4):
        budget.reserve(0.0)
    with pytest.raises(BudgetError):
        budget.reserve(0.0)
    budget.settle(0.2, 0.0, "openai/x")  # one of them failed
    budget.reserve(0.0)


def test_the_first_calls_are_held_to_what_they_are_expected_to_cost() -> None:
    budget = Budget(1.0)
    for _ in range(3):
        budget.reserve(0.3)
    with pytest.raises(BudgetError):
        budget.reserve(0.3)


def test_without_a_limit_money_is_counted_only(tmp_path: Path) -> None:
    budget = Budget(None, tmp_path / "costs.jsonl")
    pay(budget, *[100.0] * 5)
    assert budget.spent == 500


def test_what_was_spent_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "run" / "costs.jsonl"
    pay(Budget(1.0, file), 0.4, 0.0, 0.3)
    again = Budget(1.0, file)
    assert again.spent == pytest.approx(0.7)
    assert len(file.read_text().splitlines()) == 2
    with pytest.raises(BudgetError):  # it is known what a call may cost
        again.reserve(0.0)
    pay(Budget(2.0, file), 0.4)


@pytest.mark.parametrize("torn", ['{"model": "openai/x", "us', "{}", "[1]", '{"usd": null}', "\0"])
def test_a_torn_last_line_is_ignored_and_spoils_no_other(tmp_path: Path, torn: str) -> None:
    file = tmp_path / "costs.jsonl"
    pay(Budget(None, file), 0.4)
    with open(file, "a") as f:
        f.write(torn)
    budget = Budget(None, file)
    assert budget.spent == pytest.approx(0.4)
    pay(budget, 0.1, 0.2)
    assert Budget(None, file).spent == pytest.approx(0.7)


def test_usage_is_taken_once() -> None:
    usage = Usage(calls=3, seconds=1.5)
    taken = usage.take()
    usage.calls += 1
    assert (taken.calls, taken.seconds) == (3, 1.5)
    assert (usage.take().calls, usage.take().calls) == (1, 0)


def test_damaged_lines_cost_nothing_and_do_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "costs.jsonl"
    pay(Budget(None, file), 0.25)
    bad = [b"\xff\xfe", b'{"usd": ', b'{"usd": NaN}', b'{"usd": "1"}', b'{"usd": -9}', b"[]"]
    file.write_bytes(b"\n".join([*bad, file.read_bytes(), b'{"usd": 0.5']))
    budget = Budget(1.0, file)
    assert budget.spent == 0.25
    pay(budget, 0.5)
    assert Budget(1.0, file).spent == 0.75


def test_what_cannot_be_noted_is_told(tmp_path: Path) -> None:
    (tmp_path / "costs.jsonl").mkdir()
    with pytest.raises(ArtError, match=r"cannot write .*costs.jsonl: Is a directory"):
        pay(Budget(None, tmp_path / "costs.jsonl"), 0.25)
