"""Notes which test files run which functions of the program, and how long each file takes.

`known` runs all fast tests in a copy of the project under coverage.py. This file is also the plugin
of pytest in that run: it tells coverage.py whose test is running.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SECONDS = "ART_MUTATE_SECONDS"  # the variable that names the file for the seconds of each test file
CONFIG = """
[run]
source = art_cli, art_envs
parallel = true
data_file = {folder}/coverage
context = ${{PYTEST_CURRENT_TEST-}}
patch = subprocess
sigterm = true
disable_warnings = no-data-collected, module-not-measured, module-not-imported
"""  # a process that a test starts inherits the name of the test
seconds: dict[str, float] = defaultdict(float)

Runs = dict[str, list[str]]


def known(copy: Path, folder: Path, jobs: int) -> tuple[Runs, dict[str, float]]:
    """Return the test files that run each "FILE:FUNCTION", and the seconds that a file takes.

    Raises RuntimeError where a test fails: no fault could be told from that.
    """
    from coverage import CoverageData

    (folder / "config").write_text(CONFIG.format(folder=folder))
    path = os.pathsep.join(map(str, (copy, copy / "envs", copy / "scripts")))
    env = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, SECONDS: str(folder / "seconds.json")}
    run = [sys.executable, "-m", "coverage", "run", f"--rcfile={folder / 'config'}", "-m"]
    tests = ["pytest", "-p", "which_tests", "-n", str(jobs), "--dist", "loadfile", "--tb=short"]
    done = subprocess.run([*run, *tests], cwd=copy, env=os.environ | env, text=True, stdout=-1)
    if done.returncode:
        raise RuntimeError(f"the tests fail without any fault:\n{done.stdout[-8000:]}")
    runs: dict[str, set[str]] = defaultdict(set)
    for part in folder.glob("coverage.*"):
        data = CoverageData(str(part))
        data.read()
        for name in data.measured_files():
            file = Path(name).relative_to(copy)
            by_line = data.contexts_by_lineno(name)
            for function, lines in functions(Path(name).read_text(encoding="utf-8")):
                files = {test_file(c) for n in lines for c in by_line.get(n, ())}
                runs[f"{file}:{function}"] |= files - {""}
    took = json.loads((folder / "seconds.json").read_text())
    return {key: sorted(files) for key, files in runs.items()}, took


def test_file(context: str) -> str:
    """Return the file of "tests/x.py::test_y (call)"; "" for another context."""
    return context.rpartition("|")[2].partition("::")[0]


def functions(text: str) -> Iterator[tuple[str, range]]:
    """Yield each function's qualified name and the lines of its body, an outer before its inner."""

    def visit(node: ast.AST, within: str) -> Iterator[tuple[str, range]]:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{within}.{child.name}".lstrip(".")
                if not isinstance(child, ast.ClassDef):
                    yield name, range(child.body[0].lineno, (child.end_lineno or 0) + 1)
            yield from visit(child, name)

    return visit(ast.parse(text), "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Tell coverage.py that this test's file is what runs now."""
    from coverage import Coverage

    if current := Coverage.current():
        current.switch_context(item.nodeid.partition("::")[0] + "::")
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count a test's seconds."""
    seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the seconds down, in the process that has heard of all tests."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ[SECONDS]).write_text(json.dumps(seconds))
