"""`art envs check` on a busy machine: a healthy env is not blamed, and each real fault still is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from art_cli.envs.registry import env_class
from art_cli.preflight.check_result import CheckResult
from art_cli.preflight.envs import watch
from art_cli.preflight.envs.check import CHECKS, check
from art_cli.preflight.envs.subject import Options, Subject
from art_cli.system import starvation
from art_cli.system.starvation import FairClock

BURN = "while True: pass"
ENV = '''
import asyncio, time
from art_cli import Done, Env, tool

OPEN = []
NOW = [0]


def compute(seconds):
    """Take this much of a processor, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Task(Env):
    """Say how many letters the name of the scenario has."""

    max_turns = 3
    tool_timeout = 0.5
    num_scenarios = {"train": 40, "val": 10, "test": 10}

    async def start(self):
        self.said = ""
        OPEN.append(self)  # STARTS
        return f"Say {self.scenario.id}, in capitals."

    @tool()
    def look(self, key: int = 0) -> str:
        """Look it up."""
        return self.scenario.id  # LOOKS

    async def reply(self, text):
        self.said = text
        return Done()

    async def score(self, trajectory):
        return float(self.said == self.scenario.id.upper())

    async def close(self):
        OPEN.remove(self)

    def gold(self):
        yield '<tool_call>{"name": "look", "arguments": {}}</tool_call>'
        yield self.scenario.id.upper()
'''
STARTS, LOOKS = "OPEN.append(self)  # STARTS", "return self.scenario.id  # LOOKS"


def subject(folder: Path, *changes: tuple[str, str], timeout: float = 60.0) -> Subject:
    text = ENV
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "env.py").write_text(text)
    use = f"{folder / 'env.py'}:Task"
    env = env_class(use)
    return Subject(use, env, env.Config(), Options(episodes=2, timeout=timeout))


def all_of(s: Subject) -> list[CheckResult]:
    return list(check(s.use, s.env_class, s.settings, s.options))


def blamed(found: list[CheckResult]) -> list[CheckResult]:
    return [f for f in found if f.status == "failed"]


@contextmanager
def busy_machine(processes: int = 5) -> Iterator[None]:
    """Keep every processor busy several times over."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


@pytest.fixture
def counted() -> None:
    if not Path("/proc/thread-self/schedstat").exists():
        pytest.skip("the system does not count how long a thread had no processor")


@pytest.mark.slow
@pytest.mark.usefixtures("counted")
def test_a_healthy_env_is_not_blamed_on_a_busy_machine(tmp_path: Path) -> None:
    """Its `async def` computes for less than may be, and takes longer in wall time."""
    start = (STARTS, f"compute(0.12); {STARTS}")
    with busy_machine():
        s = subject(tmp_path, start)
        found = [f for name in ("episodes", "deadlines") for f in CHECKS[name](s)]
    assert blamed(found) == []
    assert not [f for f in found if "held up" in f.what or "state" in f.todo]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["blocks", "shares", "hangs"])
def test_a_fault_is_found_on_a_busy_machine_too(tmp_path: Path, fault: str) -> None:
    changes = {
        "blocks": (STARTS, f"time.sleep(0.4); {STARTS}"),
        "shares": (LOOKS, "NOW[0] += 1; return str(NOW[0])"),
        "hangs": (LOOKS, "time.sleep(30)"),
    }
    check_of = {"blocks": "deadlines", "shares": "replay", "hangs": "deadlines"}
    says = {"blocks": "Task.start held up", "shares": "look() of", "hangs": "within 0.5 s"}
    with busy_machine():
        found = list(CHECKS[check_of[fault]](subject_played(tmp_path, changes[fault])))
    assert any(says[fault] in f.what for f in blamed(found)), found


def subject_played(folder: Path, change: tuple[str, str]) -> Subject:
    s = subject(folder, change)
    assert s.plays
    return s


def test_many_at_once_that_are_late_are_a_deadline_and_no_shared_state(tmp_path: Path) -> None:
    """A machine, or a server, that is slow with many, and in time with one or two."""
    limit = ("tool_timeout = 0.5", "tool_timeout = 1.5")
    s = subject(tmp_path, (LOOKS, f"time.sleep(4 * (len(OPEN) > 4)); {LOOKS}"), limit)
    found = list(CHECKS["concurrency"](s))
    assert blamed(found) == []
    (late,) = [f for f in found if "missed a deadline" in f.what]
    assert "tool look() did not return within 1.5 s" in late.what
    assert "env: {concurrency: 1}" in late.todo


def test_episodes_that_wait_for_each_other_are_still_found(tmp_path: Path) -> None:
    wait = f"while len(OPEN) > 1: time.sleep(0.01)\n        {LOOKS}"
    found = blamed(list(CHECKS["concurrency"](subject(tmp_path, (LOOKS, wait)))))
    assert "2 at once missed it too, and one alone did not" in found[0].what


def test_a_difference_that_does_not_come_again_is_a_warning(tmp_path: Path) -> None:
    """A machine that was busy in one moment, in one of many episodes."""
    once = (
        f"NOW[0] += len(OPEN) > 9; return 'slow' if len(OPEN) > 9 and NOW[0] == 1 else ''; {LOOKS}"
    )
    s = subject(tmp_path, (LOOKS, once))
    found = list(CHECKS["concurrency"](s))
    assert blamed(found) == [] and any("once in two times" in f.what for f in found)


def test_an_episode_that_waits_for_ever_is_a_deadline_with_its_place(tmp_path: Path) -> None:
    waits = "await asyncio.sleep(1000)"
    s = subject(tmp_path, (STARTS, waits), timeout=2.0)
    (wrong,) = blamed(all_of(s))
    line = 1 + [x.strip() for x in (tmp_path / "env.py").read_text().splitlines()].index(waits)
    assert wrong.where.endswith(f"env.py:{line}"), wrong
    assert wrong.what == "the episode did not end within 2 s; Task.start waits"


def test_time_without_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lost = [100.0], {1: 5.0, 2: 0.0}
    monkeypatch.setattr(starvation.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(starvation, "_all_starved", lambda: dict(lost))
    clock = FairClock(1.0)
    now[0], lost[1] = 104.0, 8.0
    assert clock.seconds() == pytest.approx(1.0)
    now[0] = 104.5  # threads are looked at once a second
    assert clock.seconds() == pytest.approx(1.0)
    now[0], lost[3] = 120.0, 19.0  # a thread that began since; a fifth counts at the least
    assert clock.seconds() == pytest.approx(4.0)


@pytest.mark.slow
def test_an_event_loop_that_has_no_processor_does_not_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same blocking `async def`, once blamed, and once where the system took the time."""
    change = (STARTS, f"time.sleep(0.4); {STARTS}")
    assert blamed(list(CHECKS["deadlines"](subject_played(tmp_path, change))))
    monkeypatch.setattr(watch, "starved", lambda _: time.monotonic())
    assert not blamed(list(CHECKS["deadlines"](subject_played(tmp_path, change))))
