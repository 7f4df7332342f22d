"""Programs that a model wrote: what they can neither do, nor read, nor fake."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs import RAW, bash, call, error, node, python

from art_envs.code_edit.sandbox import pool
from art_envs.code_edit.sandbox.pool import Answer, SandboxError, run

SECRET = "nobody may read this"


def test_a_function_is_called_in_every_language() -> None:
    assert python("return args[0] * 2", 21).answers == (Answer(value=42),)
    assert node("return [1, {a: null}]").answers == (Answer(value=[1, {"a": None}]),)
    assert bash("REPLY='two words'").answers == (Answer(value="two words"),)


def test_what_it_prints_is_kept_apart_from_what_it_answers() -> None:
    outcome = python('print("{\\"i\\": 0, \\"value\\": 1}")\nreturn 2')
    assert outcome.answers == (Answer(value=2),) and '"value": 1' in outcome.printed


def test_where_it_is_run_is_not_told() -> None:
    assert bash("no_such_command").printed.startswith("./m.sh: ")
    assert python("return __file__").answers == (Answer(value="./m.py"),)


def test_errors_and_missing_answers_are_told() -> None:
    assert error(python("return args[1]")) == "IndexError: tuple index out of range"
    assert "TypeError" in error(python("return object()"))
    assert "it ended before it answered" in error(python("os._exit(0)"))
    assert error(python("sys.exit(0)")) == "SystemExit: 0"
    assert "undefined" in str(node("").answers[0].value)
    assert node("return [NaN, 1n]").answers[0].value == ["<NaN>", "<bigint>"]


@pytest.fixture
def runners() -> Iterator[pool.Runners]:
    runners = pool.Runners(1)
    yield runners
    runners.close()


@pytest.mark.parametrize(
    "written",
    [
        "1",
        "[]",
        '{"i": 9, "value": 1}',
        '{"i": true, "value": 1}',
        "[" * 40_000,
        "9" * 9000,
        "\\xff",
    ],
)
def test_rubbish_among_the_answers_is_no_answer(written: str) -> None:
    body = f"os.write(3, b'''{written}\\n''')\nreturn 5"
    assert python(body).answers == (Answer(value=5),)


@pytest.mark.parametrize(
    "attempt",
    [
        "os.fork()",
        "import subprocess; subprocess.run(['/bin/true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.kill(os.getppid(), 9)",
        "os.kill(1, 0)",
        "os.setsid()",
        "import socket; socket.socket()",
        "import socket; socket.socketpair()",
        "os.memfd_create('x')",
        "import fcntl; fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid())",
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (999, 999))",
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
        "open('/etc/passwd')",
        "open('/proc/self/environ')",
        "os.listdir('/proc')",
        "os.listdir('/')",
        "open(f'/proc/{os.getppid()}/mem')",
        "open('m.py', 'w')",
        "open('/tmp/written', 'w')",
        "os.remove('m.py')",
        "os.mkdir('d')",
        "os.rename('m.py', 'n.py')",
        "os.symlink('/etc/passwd', 'l')",
        "os.chmod('/tmp', 0)",
        "os.utime('/tmp')",
        "os.truncate('/tmp', 0)",
        "os.chroot('/')",
        "os.open('m.py', os.O_TRUNC)",
        "raw(57)",
        "raw(58)",
        "raw(56, 0)",
        "raw(56, 0x10000000)",
        "raw(435, 0, 0)",
        "raw(0x40000000 + 57)",
        "raw(425, 1, 0)",
        "raw(157, 1, 0, 0, 0, 0)",
    ],
)
def test_held_by_walls(attempt: str) -> None:
    if "raw" in attempt and platform.machine() != "x86_64":
        pytest.skip("the numbers of another machine")
    tried = f"{RAW}\ntry:\n    {attempt}\nexcept (OSError, ValueError):\n    return 'held'"
    assert python(f"{tried}\nreturn 'did it'").answers == (Answer(value="held"),)


def test_what_is_around_it_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    for path in (file, Path(pool.__file__).parents[1] / "texts.py", Path(__file__)):
        assert "PermissionError" in error(python(f"return open({str(path)!r}).read()"))
    for name in ("art_envs", "art_cli", "tree_sitter"):
        assert "ModuleNotFoundError" in error(python(f"import {name}"))
    assert "EACCES" in error(node(f"return require('fs').readFileSync({str(file)!r}, 'utf8')"))
    assert bash(f"REPLY=$(<{file})").answers[0].value == ""


def test_it_has_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    assert SECRET not in str(python("return dict(os.environ)").answers)
    assert SECRET not in str(node("return process.env").answers)


def test_no_descriptor_of_ours_is_open_in_it() -> None:
    body = """
    found = []
    for f in range(64):
        try:
            os.fstat(f)
        except OSError:
            continue
        found.append(f)
    return found
    """
    assert python(body.replace("\n    ", "\n")).answers[0].value == [0, 1, 2, 3]


def test_loops_and_output_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CPU_SECONDS", 1)
    assert "too long" in error(python("while True: pass"))
    assert "too long" in error(bash("while :; do :; done"))
    assert "printed too much" in error(python("while True: print('x' * 1000, flush=True)"))
    assert error(python("return f()")).startswith("RecursionError")


@pytest.mark.slow
def test_other_loops_and_sleep_have_limits() -> None:
    assert "too long" in error(node("for (;;) {}"))
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    assert "too long" in error(python(ignoring))
    assert "too long" in error(python("import time\ntime.sleep(1000)"))


@pytest.mark.parametrize(
    "body",
    [
        "return len('x' * (1 << 30))",
        "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "import mmap\nmmap.mmap(-1, 1 << 30)",
        "import threading\nwhile True: threading.Thread(target=lambda: os.read(0, 1)).start()",
    ],
)
def test_memory_has_limits(body: str) -> None:
    assert error(python(body))
    assert python("return 1").answers == (Answer(value=1),)


def test_a_fork_bomb_starts_nothing() -> None:
    outcome = bash("f | f & f")
    assert error(outcome) and "fork" in outcome.printed


@pytest.mark.parametrize(
    "attempt",
    [
        'import json; json.dumps = lambda *a, **k: \'{"i": 0, "value": 1, "want": 1}\'',
        "import importlib; importlib.import_module = lambda name: None",
        "sys.modules.clear()",
        "import builtins; builtins.getattr = None",
        "os.close(3)",
        "sys.stdout.close()",
        "sys.settrace(lambda *a: sys.exit(0))",
    ],
)
def test_changing_the_harness_hurts_oneself_alone(attempt: str) -> None:
    python(f"{attempt}\nreturn 3")
    assert python("return 4").answers == (Answer(value=4),)


def test_nothing_is_left_from_one_program_for_the_next() -> None:
    python("sys.path.insert(0, '/x'); sys.modules['m2'] = sys\nreturn 1")
    assert "m2" not in python("return list(sys.modules)").answers[0].value
    files = {"m.py": "def f(): import other", "other.py": "x = 1"}
    run("python", files, [call()])
    again = run("python", {"m.py": "def f(): import other"}, [call()])
    assert "ModuleNotFoundError" in error(again)


def test_the_same_program_is_run_once_but_for_slow_ones() -> None:
    body = "import time\nreturn time.perf_counter_ns()"
    assert python(body) == python(body)


def test_a_runner_ends_with_its_starter() -> None:
    code = (
        "from art_envs.code_edit.sandbox.pool import run, _runners\n"
        "run('python', {'m.py': 'def f(): pass'}, [{'module': 'm', 'name': 'f', 'args': []}])\n"
        "print(_runners()._free.get().process.pid, flush=True)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    pid, until = int(out.stdout), time.monotonic() + 300
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def test_a_program_ends_with_the_starter_of_its_runner(tmp_path: Path) -> None:
    code = (
        "import os, signal, threading, time\n"
        "from art_envs.code_edit.sandbox.pool import run\n"
        "files = {'m.py': 'import time\\ndef f(): time.sleep(60)'}\n"
        "job = ('python', files, [{'module': 'm', 'name': 'f', 'args': []}])\n"
        "threading.Thread(target=run, args=job).start()\n"
        "while not os.listdir(os.environ['TMPDIR']): time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=False)
    until = time.monotonic() + 8  # less than the program would take
    while os.listdir(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert os.listdir(tmp_path) == []  # the runner took its folder with it


def test_a_runner_that_was_killed_is_replaced(
    runners: pool.Runners, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = '{"language": "python", "files": {"m.py": "def f(): return 1"}, "calls": '
    job += '[{"module": "m", "name": "f", "args": []}], "cpu_seconds": 2, "wall_seconds": 10}'
    assert '"value": 1' in runners.ask(job)["results"]
    runner = runners._free.get()
    assert runner
    runner.process.kill()
    runner.process.wait()
    runners._free.put(runner)
    assert '"value": 1' in runners.ask(job)["results"]
    assert len(os.listdir(tmp_path)) == 1  # of the new one
    runners.close()
    assert os.listdir(tmp_path) == []


def test_a_machine_without_walls_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runners: pool.Runners
) -> None:
    stand_in = tmp_path / "runner.py"
    stand_in.write_text("""print('{"no_walls": "a kernel without Landlock"}')""")
    monkeypatch.setattr(pool, "RUNNER", stand_in)
    with pytest.raises(SandboxError, match="a kernel without Landlock; it needs Linux"):
        runners.ask("{}")
