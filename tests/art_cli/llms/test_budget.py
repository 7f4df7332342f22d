"""Money: what a run may spend, over all its starts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import any_json_text, fuzz
from hypothesis import given
from hypothesis import strategies as st

from art_cli.errors import EXIT_BUDGET, ArtError, BudgetError
from art_cli.llms.base import Budget, Reservation, Usage


def reserved(budget: Budget, most: float) -> Reservation:
    return asyncio.run(budget.reserve("openai/x", most))


def pay(budget: Budget, *prices: float) -> None:
    for usd in prices:
        budget.settle(reserved(budget, usd), usd)


def test_the_call_that_could_go_over_is_refused() -> None:
    budget = Budget(1.0)
    pay(budget, 0.3, 0.3, 0.3)
    words = r"judge\.max_usd=1 is used up: \$0\.9000 spent, and one more call can cost up to \$0\.3"
    with pytest.raises(BudgetError, match=words) as raised:
        reserved(budget, 0.3)
    assert raised.value.exit_code == EXIT_BUDGET
    assert budget.spent == pytest.approx(0.9)
    reserved(budget, 0.1)  # a smaller one fits


def test_a_limit_that_no_call_fits_into_is_called_too_small() -> None:
    with pytest.raises(BudgetError, match=r"=0\.1 is not enough: .* raise judge\.max_usd, or"):
        reserved(Budget(0.1), 0.3)


def test_a_call_waits_for_those_under_way_if_they_may_leave_enough() -> None:
    async def go() -> None:
        budget = Budget(1.0)
        under_way = [await budget.reserve("openai/x", 0.4) for _ in range(2)]
        third = asyncio.ensure_future(budget.reserve("openai/x", 0.4))
        await asyncio.sleep(0)
        budget.settle(under_way[0], 0.3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not third.done()  # 0.3 spent, 0.4 under way
        budget.settle(under_way[1], 0.3)
        budget.settle(await third, 0.4)
        assert budget.spent == pytest.approx(1.0)

    asyncio.run(go())


def test_a_call_that_waited_is_refused_when_the_others_leave_too_little() -> None:
    async def go() -> None:
        budget = Budget(1.0)
        first = await budget.reserve("openai/x", 0.7)
        second = asyncio.ensure_future(budget.reserve("openai/x", 0.7))
        await asyncio.sleep(0)
        budget.settle(first, 0.5)
        with pytest.raises(BudgetError, match=r"\$0\.5000 spent"):
            await second

    asyncio.run(go())


def test_what_a_server_adds_to_each_call_is_reserved_from_then_on() -> None:
    budget = Budget(1.0)
    budget.settle(reserved(budget, 0.1), 0.3)  # it counts its own instructions
    with pytest.raises(BudgetError, match=r"can cost up to \$0\.8"):
        reserved(budget, 0.6)


def test_calls_without_an_answer_are_told_apart() -> None:
    budget = Budget(1.0)
    budget.settle(reserved(budget, 0.4), 0.2)
    for usd in (0.3, 0.2, 0.0):
        budget.settle(reserved(budget, usd), usd, answered=False)
    words = r"\$0\.7000 spent \(\$0\.5000 of it for 2 calls without an answer, which may have been"
    with pytest.raises(BudgetError, match=words):
        reserved(budget, 0.5)


def test_without_a_limit_money_is_counted_only(tmp_path: Path) -> None:
    budget = Budget(None, tmp_path / "costs.jsonl")
    pay(budget, *[100.0] * 5)
    assert budget.spent == 500


def test_what_was_spent_survives_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "run" / "costs.jsonl"
    first = Budget(1.0, file)
    pay(first, 0.4, 0.0)
    first.settle(reserved(first, 0.3), 0.3, answered=False)
    again = Budget(1.0, file)
    assert again.spent == pytest.approx(0.7)
    with pytest.raises(BudgetError, match=r"0\.3000 of it for 1 call without an answer"):
        reserved(again, 0.4)
    pay(Budget(2.0, file), 0.4)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from art_cli.llms.base import Budget

async def go():
    budget = Budget(9.0, Path(sys.argv[1]))
    for _ in range(3):
        budget.settle(await budget.reserve("openai/x", 0.5), 0.25)
    await asyncio.gather(*(budget.reserve("openai/x", 0.5) for _ in range(4)))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(go())
"""


def test_calls_under_way_when_the_run_was_killed_count_as_reserved(tmp_path: Path) -> None:
    file = tmp_path / "costs.jsonl"
    code = subprocess.run([sys.executable, "-c", KILLED, str(file)], env=dict(os.environ))
    assert code.returncode == -signal.SIGKILL
    for _ in range(2):  # the same each time
        assert Budget(9.0, file).spent == pytest.approx(3 * 0.25 + 4 * 0.5)


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


@pytest.mark.parametrize("usd", ["-5", "NaN", "-Infinity", "Infinity", "9" * 5000, "1e999"])
def test_a_line_that_is_no_money_takes_nothing_back(tmp_path: Path, usd: str) -> None:
    file = tmp_path / "costs.jsonl"
    pay(Budget(None, file), 0.4)
    with open(file, "a") as f:
        f.write(f'{{"usd": {usd}}}\n')
    assert Budget(None, file).spent == pytest.approx(0.4)


Deeds = st.lists(
    st.tuples(st.floats(0, 0.5), st.floats(0, 1), st.booleans(), st.integers(0, 9)), max_size=12
)


@fuzz(1000)
@given(Deeds)
def test_calls_that_cost_no_more_than_was_reserved_never_cost_more_than_the_limit(
    deeds: list[tuple[float, float, bool, int]],
) -> None:
    async def go() -> None:
        budget = Budget(1.0)

        async def one(most: float, share: float, answered: bool, steps: int) -> None:
            call = await budget.reserve("openai/x", most)
            for _ in range(steps):
                await asyncio.sleep(0)
            budget.settle(call, most * share if answered else call.usd, answered=answered)

        done = await asyncio.gather(*(one(*deed) for deed in deeds), return_exceptions=True)
        assert all(each is None or isinstance(each, BudgetError) for each in done)
        assert budget.spent <= 1.0 + 1e-9
        if sum(most for most, *_ in deeds) <= 1.0:  # all of them fit side by side
            assert done == [None] * len(deeds)

    asyncio.run(go())


@fuzz(500)
@given(any_json_text)
def test_no_file_is_a_budget_that_cannot_be_read(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_bytes(text.encode(errors="surrogatepass"))
    before = Budget(None, file)
    pay(before, 0.25)
    assert Budget(None, file).spent == pytest.approx(before.spent)


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
