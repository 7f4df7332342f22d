"""Calls end by their deadline, whatever the code that is called does."""

import asyncio
import functools
import gc
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hosted import SCENARIO, Shop

from art_cli.envs.base import tool
from art_cli.errors import EnvError
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.rollout import rollout
from art_cli.system import deadline
from art_cli.system.deadline import DeadlineError, awaits_nothing, call, within
from art_cli.system.watchdog import watchdog
from art_cli.types import Message, Trajectory

STUCK = """
import asyncio, threading, time
from art_cli.system.deadline import DeadlineError, call

async def main():
    try:
        await call(lambda: time.sleep(1e6), seconds=0.1, what="nap()")
    except DeadlineError as e:
        print(e)

asyncio.run(main())
"""
BLOCKED = """
import asyncio, time
from art_cli.system.watchdog import watchdog

async def busy():
    time.sleep(1e6)

async def main():
    with watchdog(0.3, "the env Slow"):
        await busy()

asyncio.run(main())
"""


def run(function: Any, *args: Any, seconds: float = 60.0) -> Any:
    return asyncio.run(call(function, *args, seconds=seconds, what="it"))


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )


def test_plain_functions_run_in_a_thread_and_async_ones_on_the_loop() -> None:
    async def here() -> str:
        return threading.current_thread().name

    assert run(lambda: threading.current_thread().name) == "art-env"
    assert run(here) == "MainThread"
    assert run(lambda a, b: a + b, 1, 2) == 3


def test_errors_come_through() -> None:
    with pytest.raises(KeyError, match="x"):
        run(lambda: {}["x"])


def test_what_would_end_the_program_or_the_loop_becomes_an_error() -> None:
    async def leave() -> None:
        sys.exit(0)

    async def cancel() -> None:
        raise asyncio.CancelledError

    for function in (leave, cancel, lambda: sys.exit(0), lambda: next(iter(()))):
        with pytest.raises(RuntimeError, match=r"raised|cancelled from within"):
            run(function)


async def straight() -> object:
    """Awaits nothing."""
    return asyncio.current_task()


async def waits() -> object:
    await asyncio.sleep(0)
    return asyncio.current_task()


async def enters() -> None:
    async with asyncio.Lock():
        pass


async def walks(many: Any) -> None:
    async for _ in many:
        pass


async def gathers(many: Any) -> list[Any]:
    return [x async for x in many]


class Straight:
    async def method(self) -> object:
        return await straight()

    async def other(self) -> None:
        self.name = "other"


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    async def outer() -> Any:
        await asyncio.sleep(0)
        return await function()

    return outer


def test_which_async_functions_await_nothing() -> None:
    here = Straight()
    assert all(map(awaits_nothing, [straight, here.other, functools.partial(here.other)]))
    others = [waits, enters, walks, gathers, here.method, functools.partial(waits)]
    assert not any(map(awaits_nothing, [*others, wrapped(straight), lambda: None, print]))


def test_only_what_awaits_something_has_a_task_of_its_own() -> None:
    async def who(function: Any) -> bool:
        return await call(function, seconds=60, what="it") is asyncio.current_task()

    assert asyncio.run(who(straight)) and not asyncio.run(who(waits))


def test_a_late_async_function_is_cancelled() -> None:
    ended = []

    async def late() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(DeadlineError, match=r"it did not return within 0.05 s"):
        run(late, seconds=0.05)
    assert ended


def test_a_stuck_thread_does_not_hold_up_the_exit() -> None:
    result = python(STUCK)  # else it takes eleven days
    assert (result.stdout, result.returncode) == ("nap() did not return within 0.1 s\n", 0)


def test_threads_are_used_again() -> None:
    async def many() -> int:
        for _ in range(20):
            await call(lambda: None, seconds=60, what="it")
        return sum(t.name == "art-env" for t in threading.enumerate())

    before = sum(t.name == "art-env" for t in threading.enumerate())
    assert asyncio.run(many()) <= before + 2


class Large:
    """Something that is too large to be kept for nothing."""


def test_an_idle_thread_holds_nothing_of_its_last_call() -> None:
    def look(at: Large) -> Large:
        return at

    def fail(at: Large) -> None:
        raise ValueError(str(at))

    async def use(function: Any) -> weakref.ref[Large]:
        large = Large()
        with suppress(ValueError):
            await call(function, large, seconds=5, what="use()")
        return weakref.ref(large)

    for function in (look, fail):
        held = asyncio.run(use(function))
        limit = time.monotonic() + 120  # until the thread waits again
        while held() is not None:
            assert time.monotonic() < limit
            gc.collect()  # an error and the frames that it went through hold each other
            time.sleep(0.01)


def test_calls_in_threads_run_side_by_side() -> None:
    all_are_here = threading.Barrier(20)

    async def many() -> list[int]:
        waits = (call(all_are_here.wait, 60, seconds=60, what="wait") for _ in range(20))
        return await asyncio.gather(*waits)

    assert sorted(asyncio.run(many())) == list(range(20))


def test_a_blocked_loop_ends_the_process_and_says_where_it_stood() -> None:
    result = python(BLOCKED)
    assert result.returncode == 1
    assert "error: the env Slow blocked the program for 0.3 s; stopping" in result.stderr
    assert "line 6 in busy" in result.stderr


@pytest.mark.slow
def test_the_watchdog_leaves_a_slow_but_living_loop_alone() -> None:
    async def slow() -> str:
        with watchdog(2.0, "it"):  # it would end pytest
            for _ in range(25):
                await asyncio.sleep(0.1)
        return "done"

    assert asyncio.run(slow()) == "done"


def test_without_a_loop_a_call_ends_by_its_deadline_and_its_errors_come_through() -> None:
    assert within(60, lambda: None) is None
    with pytest.raises(DeadlineError, match=r"no answer after 0\.05 s"):
        within(0.05, lambda: time.sleep(5))
    with pytest.raises(KeyError, match="x"):
        within(60, lambda: {}["x"])
    with pytest.raises(RuntimeError, match="SystemExit: 0"):
        within(60, lambda: sys.exit(0))


def test_a_call_may_be_given_more_time() -> None:
    assert within(0.05, lambda: time.sleep(0.2) or "late", more=lambda: True) == "late"
    grants = iter([True, True, False])
    with pytest.raises(DeadlineError):
        within(0.05, lambda: time.sleep(5), more=grants.__next__)
    assert next(grants, None) is None


class Asker(TurnAgent):
    """An agent that calls the tool `wait` in each turn."""

    async def act(self, messages: list[Message]) -> str:
        return '<tool_call>{"name": "wait", "arguments": {}}</tool_call>'

    def record(self, trajectory: Trajectory) -> None: ...


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What lets all stuck calls of a test come back; few of them may be stuck."""
    monkeypatch.setattr(deadline, "MAX_STUCK", 3)
    monkeypatch.setattr(deadline, "_threads", deadline._DaemonThreads())  # without those of others
    event = threading.Event()
    yield event
    event.set()
    until(lambda: not deadline._threads._called)


def until(is_so: Any) -> None:
    limit = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_tools_that_hang_again_and_again_end_the_run_with_their_name_and_line(release: Any) -> None:
    class Slow(Shop):
        tool_timeout = 0.1

        @tool()
        def wait(self) -> str:
            """Wait."""
            release.wait()
            return "late"

    async def play() -> list[str | None]:
        return [(await rollout(Slow, None, SCENARIO, Asker())).error for _ in range(3)]

    assert asyncio.run(play()) == ["tool wait() did not return within 0.1 s"] * 3
    with pytest.raises(EnvError) as raised:
        asyncio.run(play())
    line = Slow.wait.__code__.co_firstlineno
    assert f"4 of them are tool wait() ({__file__}:{line}). Give" in str(raised.value)
    assert str(raised.value).startswith("4 calls of the env missed their deadline and still have")


def test_a_close_that_hangs_again_and_again_ends_the_run_too(release: Any) -> None:
    class Clinging(Shop):
        tool_timeout = 0.1

        def close(self) -> None:  # type: ignore[override]
            release.wait()

    async def play() -> None:
        for _ in range(4):
            await rollout(Clinging, None, SCENARIO, Asker())

    with pytest.raises(EnvError, match=rf"close\(\) \({Path(__file__)}:\d+\)"):
        asyncio.run(play())


def test_calls_that_come_back_late_are_not_counted(release: Any) -> None:
    for _ in range(4):
        for _ in range(3):
            with pytest.raises(DeadlineError):
                run(release.wait, seconds=0.05)
        release.set()
        until(lambda: not deadline._threads._called)
        release.clear()
