"""docs/promises.md promises nothing without a test."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^- (.+?)(?=\n- |\n\n|\Z)", PAGE, re.M | re.S)


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_test(promise: str) -> None:
    tests = re.findall(r"`(\S+\.py)::(test_\w+)`", promise)
    assert tests, promise
    for file, name in tests:
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        functions = [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)]
        assert name in [f.name for f in functions], f"{file} has no {name}"


def test_the_page_has_promises() -> None:
    assert len(PROMISES) > 30
