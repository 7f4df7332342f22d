"""Asks math-verify, in a process of its own: it stops what takes long by a signal, which only a
main thread gets, and sympy may take all memory that there is.

One process serves all episodes, one question after the other. It is started when it is first asked,
and anew when it died. What takes too long, or ends it, is not equal and has no value.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from importlib.util import find_spec

from art_cli import UsageError
from art_envs.tasks.rows import INSTALL

START_SECONDS = 60.0  # until sympy is imported
ANSWER_SECONDS = 20.0  # math-verify itself stops after some seconds a step


def is_equal(target: str, said: str) -> bool:
    """Return whether two texts have the same value."""
    return _worker.ask({"target": target, "said": said})


def has_value(target: str) -> bool:
    """Return whether a value can be read in a target."""
    return _worker.ask({"target": target})


class _Worker:
    """The process, and a lock: one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, str]) -> bool:
        with self._lock:
            for _ in range(2):  # it may have died of something else before
                if self._process is None or self._process.poll() is not None:
                    self._start()
                began = time.monotonic()
                answer = self._answer(question)
                if answer is not None:
                    return answer
                self.stop()
                if time.monotonic() - began >= ANSWER_SECONDS:
                    break
            return False

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream
                stream.close()

    def _start(self) -> None:
        self.stop()
        if find_spec("math_verify") is None:
            raise UsageError(f"grade: math needs the package math-verify: {INSTALL}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "art_envs.tasks.math_worker"],
            stdin=subprocess.PIPE,  # it ends when this closes
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        if self._line(START_SECONDS) is None:
            self.stop()
            raise RuntimeError("the process of math-verify did not start")

    def _answer(self, question: dict[str, str]) -> bool | None:
        assert self._process and self._process.stdin
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        line = self._line(ANSWER_SECONDS)
        return None if line is None else json.loads(line)

    def _line(self, seconds: float) -> bytes | None:
        """Return a line of what it writes; None where there is none in time, or it ended."""
        assert self._process and self._process.stdout
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return None
            part = os.read(descriptor, 4096)
            if not part:
                return None
            line += part
        return line


_worker = _Worker()
atexit.register(_worker.stop)
