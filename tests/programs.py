"""Programs that a model may have written, run behind the walls of code_edit."""

from __future__ import annotations

from typing import Any

import pytest

from art_envs.code_edit.sandbox import pool
from art_envs.code_edit.sandbox.pool import Outcome, run

RAW = """import ctypes
def raw(*args):
    if ctypes.CDLL(None, use_errno=True).syscall(*args) == -1:
        raise OSError"""


def python(body: str, *arguments: Any) -> Outcome:
    """What comes of `f(*arguments)` with this body."""
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    files = {"m.py": f"import os, sys\n\ndef f(*args):\n{lines}\n"}
    return run("python", files, [{"module": "m", "name": "f", "args": list(arguments)}])


def node(body: str) -> Outcome:
    if "javascript" not in pool.languages():
        pytest.skip("no node here")
    return run("javascript", {"m.js": f"exports.f = () => {{ {body} }}"}, [call()])


def bash(body: str) -> Outcome:
    return run("bash", {"m.sh": f"f() {{ {body}\n}}"}, [call()])


def call() -> pool.Call:
    return {"module": "m", "name": "f", "args": []}


def error(outcome: Outcome) -> str:
    return outcome.answers[0].error
