"""Programs that a model wrote and that hold on: to time, to descriptors, to their runner."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import RAW, bash, error, node, python

from art_envs.code_edit.sandbox import pool
from art_envs.code_edit.sandbox.pool import Answer, run

pytestmark = pytest.mark.slow
QUIET = "for fd in range(64):\n    try: os.close(fd)\n    except OSError: pass"
IGNORING = "import signal, time\nfor n in (1, 2, 15, 24): signal.signal(n, signal.SIG_IGN)"
SLEEP = "import time\ntime.sleep(1000)"
BEYOND = "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Say, at the end, whether anything is left of what was run in one runner of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pool, "WALL_SECONDS", 1.5)
    runners = pool.Runners(1)
    monkeypatch.setattr(pool, "_runners", lambda: runners)
    yield runners
    assert python("return 'next'").answers == (Answer(value="next"),)
    runner = runners._free.get()
    assert runner
    children = Path(f"/proc/{runner.process.pid}/task/{runner.process.pid}/children")
    assert children.read_text() == ""
    assert os.listdir(tmp_path) == [Path(runner.folder).name]
    until = time.monotonic() + 100
    while os.listdir(runner.folder) and time.monotonic() < until:  # it answers before it cleans up
        time.sleep(0.01)
    assert os.listdir(runner.folder) == []
    runner.end()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [
        f"{QUIET}\n{SLEEP}",
        f"os.close(1); os.close(2); os.close(3)\n{SLEEP}",
        f"{IGNORING}\n{QUIET}\n{SLEEP}",
        f"{RAW}\n{BEYOND}\n{QUIET}\nraw(60, 0)",
        "import time\nwhile True: os.write(1, b'x'); time.sleep(0.01)",
        "import time\nwhile True: os.write(3, b'x'); time.sleep(0.01)",
        "while True: os.write(3, b'x' * 1000)",
        f"{RAW}\n{QUIET}\ntry: raw(157, 1, 0, 0, 0, 0)\nexcept OSError: pass\n{SLEEP}",
        "os.close(3)\nos._exit(0)",
        f"os._exit = lambda *_: None\nos.close(3)\n{SLEEP}",
        "os.kill(os.getppid(), 9)\nreturn 1",
        f"import atexit\natexit.register({{}}.get)\n{QUIET}\nsys.exit(0)",
    ],
)
def test_a_program_that_holds_on_has_no_answer_in_time_and_leaves_nothing(
    alone: pool.Runners, body: str
) -> None:
    began = time.monotonic()
    assert error(python(body)) and time.monotonic() - began < 40
    assert alone._free.qsize() == 1


@pytest.mark.parametrize(
    "body",
    [
        f"import atexit\natexit.register(lambda: print('late'))\n{BEYOND}\nreturn 5",
        "import time\nsys.stdout = type('', (), {'flush': lambda s: time.sleep(1000)})()\nreturn 5",
        "os._exit = lambda *_: None\nreturn 5",
        "os.close(0); os.close(1); os.close(2)\nreturn 5",
    ],
)
def test_a_right_answer_counts_whatever_the_program_does_behind_it(
    alone: pool.Runners, body: str
) -> None:
    assert python(body).answers == (Answer(value=5),)


@pytest.mark.parametrize(
    "body",
    [
        "for (let fd = 0; fd < 4; fd++) try { require('fs').closeSync(fd) } catch {}"
        " Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
        "const fs = require('fs'); fs.closeSync(1); fs.closeSync(2); fs.closeSync(3);"
        " setInterval(() => {}, 1000)",
        "process.on('exit', () => { for (;;) {} }); require('fs').closeSync(3); process.exit(0)",
        "process.kill(process.ppid, 9)",
    ],
)
def test_a_javascript_that_holds_on_has_no_answer_in_time(alone: pool.Runners, body: str) -> None:
    began = time.monotonic()
    assert error(node(body)) and time.monotonic() - began < 40


def test_a_shell_that_holds_on_has_no_answer_in_time(alone: pool.Runners) -> None:
    assert error(bash("exec 0<&- 1>&- 2>&- 3>&-; trap '' TERM HUP INT; while :; do :; done"))


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e"])
def test_characters_that_end_lines_elsewhere_are_a_part_of_an_answer(character: str) -> None:
    text = f"a{character}b"
    calls: list[pool.Call] = [{"module": "m", "name": "f", "args": [text]}]
    sources = {
        "python": {"m.py": "def f(x): return x"},
        "javascript": {"m.js": "exports.f = x => x"},
        "bash": {"m.sh": "f() { REPLY=$1; }"},
    }
    for language in pool.languages():
        assert run(language, sources[language], calls).answers == (Answer(value=text),), language


def test_much_input_that_nobody_reads_holds_up_nothing(alone: pool.Runners) -> None:
    assert python("return len(args[0])", "x" * 300_000).answers == (Answer(value=300_000),)
    assert error(python(SLEEP, "x" * 300_000))
