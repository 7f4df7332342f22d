"""Runs programs of a repository, some at a time, and remembers what came of those it has run."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import select
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

Language = Literal["python", "javascript", "bash"]
Call = dict[
    str, Any
]  # {"module", "name", "args"}; of a class "steps" too: [[method, args...], ...]

PROGRAMS = {"javascript": "node", "bash": "bash"}
SMALLEST: dict[Language, dict[str, str]] = {
    "python": {"m.py": "def f(x): return x"},
    "javascript": {"m.js": "exports.f = x => x"},
    "bash": {"m.sh": "f() { REPLY=$1; }"},
}
CPU_SECONDS = 2  # of one program
WALL_SECONDS = 10.0  # of one that sleeps
PATIENCE = 60.0  # seconds for a runner, which has limits of its own, to answer
KEPT = 4096  # outcomes that are remembered
RUNNER = Path(__file__).with_name("runner.py")
ENDINGS = {
    "time": "it took too long and was ended",
    "output": "it printed too much and was ended",
    "": "it ended before it answered",
}


class SandboxError(Exception):
    """This machine cannot run what a model wrote, or a runner died."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of one call."""

    value: Any = None
    error: str = ""  # an exception, or why there is no answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a program."""

    answers: tuple[Answer, ...]  # one for each call
    printed: str  # on stdout and stderr


class _Slow(Exception):
    """Carries an outcome that depends on how busy the machine is: it is not remembered."""


@cache
def languages() -> tuple[Language, ...]:
    """Return the languages that this machine can run: a program has answered in each."""
    calls: list[Call] = [{"module": "m", "name": "f", "args": ["yes"]}]
    return tuple(
        language
        for language, files in SMALLEST.items()
        if run(language, files, calls).answers[0].value == "yes"
    )


def run(language: Language, files: dict[str, str], calls: list[Call]) -> Outcome:
    """Make calls of the repository's functions, in one process behind walls.

    Blocks: for a thread. Raises SandboxError where the machine is at fault, never the program.
    """
    job = {"language": language, "files": files, "calls": calls}
    job |= {"cpu_seconds": CPU_SECONDS, "wall_seconds": WALL_SECONDS}
    try:
        return _remembered(json.dumps(job, sort_keys=True))
    except _Slow as e:
        return e.args[0]


@lru_cache(maxsize=KEPT)
def _remembered(job: str) -> Outcome:
    answer = _runners().ask(job)
    why = answer["ended"]
    missing = Answer(error=ENDINGS.get(why, f"it was ended by {why}"))
    answers = [missing] * len(json.loads(job)["calls"])
    # Not splitlines: it also splits at characters that JSON allows within a line.
    for line in reversed(answer["results"].split("\n")):  # the first for a call is the one
        if (read := _read(line, len(answers))) is not None:
            answers[read[0]] = read[1]
    outcome = Outcome(tuple(answers), answer["printed"])
    if why == "time":
        raise _Slow(outcome)
    return outcome


def _read(line: str, num: int) -> tuple[int, Answer] | None:
    """Return which call a line answers, and how. None where it is no answer.

    The program may have written the line itself: anything can stand in it.
    """
    try:
        found = json.loads(line)
        i = found["i"]
        if type(i) is not int or not 0 <= i < num:
            return None
        if "value" in found:
            return i, Answer(value=found["value"])
        return i, Answer(error=str(found["error"])[:300])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


@cache
def _runners() -> Runners:
    runners = Runners(max(2, os.cpu_count() or 1))
    atexit.register(runners.close)
    return runners


class Runners:
    """Processes that are ready to run a program each."""

    def __init__(self, most: int) -> None:
        self._free: queue.LifoQueue[Runner | None] = queue.LifoQueue()
        for _ in range(most):
            self._free.put(None)  # started when it is needed

    def ask(self, job: str) -> dict[str, Any]:
        """Return a runner's answer; a runner that died is replaced once."""
        runner = self._free.get()
        try:
            for _ in range(2):
                runner = runner or _start()
                if (answer := _ask(runner.process, job)) is not None:
                    return answer
                runner.kill()
                runner = None
            raise SandboxError("the process that runs programs died twice")
        finally:
            self._free.put(runner)

    def close(self) -> None:
        """End those that are not at work."""
        while not self._free.empty():
            if runner := self._free.get():
                runner.end()


@dataclass(frozen=True, slots=True)
class Runner:
    """A process that runs a program at a time, and the folder in which it does."""

    process: subprocess.Popen[bytes]
    folder: str

    def kill(self) -> None:
        """End it at once: it does not answer. The kernel then ends the program that it runs."""
        self.process.kill()
        self.end()

    def end(self) -> None:
        """End it: it ends with its stdin, and so does the program that it runs."""
        with self.process as process:
            assert process.stdin
            with contextlib.suppress(OSError):
                process.stdin.close()
        shutil.rmtree(self.folder, ignore_errors=True)  # one that was killed has left it


def _start() -> Runner:
    programs = [f"{name}={path}" for name, path in _programs().items()]
    folder = tempfile.mkdtemp(prefix="art-code-")
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", str(RUNNER), folder, *programs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PYTHONHASHSEED": "0", "PATH": os.defpath},
    )
    runner = Runner(process, folder)
    ready = _answer(process) or {"no_walls": "its process did not start"}
    if "no_walls" in ready:
        runner.kill()
        raise SandboxError(
            f"code_edit runs programs that a model wrote, behind walls that this machine does not "
            f"have: {ready['no_walls']}; it needs Linux 6.2 or newer with Landlock and seccomp"
        )
    return runner


def _programs() -> dict[str, str]:
    found = {name: shutil.which(program) for name, program in PROGRAMS.items()}
    return {name: os.path.realpath(path) for name, path in found.items() if path}


def _ask(runner: subprocess.Popen[bytes], job: str) -> dict[str, Any] | None:
    assert runner.stdin
    try:
        runner.stdin.write(job.encode() + b"\n")
        runner.stdin.flush()
    except OSError:
        return None
    return _answer(runner)


def _answer(runner: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    assert runner.stdout
    if not select.select([runner.stdout], [], [], PATIENCE)[0]:
        return None
    line = runner.stdout.readline()
    return json.loads(line) if line.endswith(b"\n") else None
