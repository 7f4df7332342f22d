"""Say which tests with an environment of their own are due: something they depend on has changed.

    python scripts/suites.py                   # the test files of tests/integration that are due
    python scripts/suites.py --record FILE...  # these have passed as things are

A test file depends on the files that it imports, directly or not, on the data files beside those,
on the files that it names, and on the requirements in pyproject.toml. `.ci/passed.json` has the
digest of all that as it was when the test last passed. With CI_ALL=1 all are due. Tests of
tests/integration that need no environment of their own are always due.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from itertools import product
from pathlib import Path

from art_cli import _MODULE_OF as MODULE_OF
from art_cli.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / ".ci" / "passed.json"
SOURCES = (ROOT, ROOT / "tests", ROOT / "envs")
TESTS = ROOT / "tests" / "integration"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APART = (TESTS / "vllm", TESTS / "skypilot")  # each has an environment of its own: scripts/test-*
ALWAYS = (ROOT / "scripts" / "setup", ROOT / "tests" / "conftest.py")
DOTTED = re.compile(r"\b(?:art_cli|art_envs|integration)(?:\.\w+)+")
MAIN = ROOT / "art_cli" / "cli" / "main.py"
LAZY = (MAIN, ROOT / "art_cli" / "__init__.py")  # they import what they are asked for


def suites() -> list[Path]:
    """Return the test files that need an environment of their own."""
    own = ROOT / "tests" / "own_venv.py"
    files = [p for p in tracked() if TESTS in p.parents and p.name.startswith("test_")]
    return [p for p in files if p.parent in APART or own in imported(p) | beside(p)]


def beside(test: Path) -> set[Path]:
    """Return the other files of a test's folder: conftest.py, and programs that tests start."""
    folder = test.parent
    if folder == TESTS:
        return set()
    found = {p for p in tracked() if folder in p.parents and not p.name.startswith("test_")}
    return found.union(*(imported(p) for p in found if p.name == "conftest.py"))


def files_of(test: Path) -> list[Path]:
    """Return all files that a test file depends on."""
    found, todo = set[Path](), [test, *ALWAYS, *beside(test), *named(test)]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imported(path) if path.suffix == ".py" else ()
    rooms = {p.parent for p in found if p.relative_to(ROOT).parts[0] in ("art_cli", "envs")}
    data = {p for p in tracked() if p.suffix != ".py" and {p.parent, p.parent.parent} & rooms}
    return sorted(found | data)


@cache
def imported(path: Path) -> frozenset[Path]:
    """Return the project's files that a file imports, or names as a module in a text."""
    found = set[Path]()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            found |= modules(*names, *(MODULE_OF.values() if "art_cli" in names else ()))
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= modules(*names, *(MODULE_OF.get(n.removeprefix("art_cli."), n) for n in names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_lazy = path in LAZY
            found |= modules(*() if is_lazy else DOTTED.findall(node.value), are_whole=True)
    return frozenset(found)


def modules(*names: str, are_whole: bool = False) -> set[Path]:
    """Return the files of modules and of the packages that they are in; of whole packages, all."""
    found = set[Path]()
    for name, source in product(names, SOURCES):
        parts = name.split(".")
        for place in (source.joinpath(*parts[: n + 1]) for n in range(len(parts))):
            found |= {p for p in (place / "__init__.py", Path(f"{place}.py")) if p.is_file()}
        if are_whole and len(parts) > 1 and (source.joinpath(*parts) / "__init__.py").is_file():
            found |= set(source.joinpath(*parts).rglob("*.py"))
    return found


def named(test: Path) -> set[Path]:
    """Return the files, commands and envs that a test, its helpers and its configs name."""
    helpers = {p for p in imported(test) | beside(test) if p.suffix == ".py"}
    texts = [
        child.value
        for path in {test, *(p for p in helpers if ROOT / "tests" in p.parents)}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.Constant) and isinstance(child.value, str)
        if not isinstance(node, ast.Expr)  # a docstring
    ]
    words = {word for text in texts for word in re.findall(r"[\w./-]+", text)}
    names = {Path(word).name for word in words}
    found = {p for p in tracked() if p.name in names and p.suffix}
    configs = "".join(p.read_text(encoding="utf-8") for p in found if p.suffix == ".yaml")
    words |= set(re.findall(r"[\w./-]+", configs))
    for name, use in PROJECT["entry-points"]["art.envs"].items():
        found |= modules(use.partition(":")[0]) if name in words else set()
    if {"art", "art_cli"} & set(texts) or MAIN in imported(test):
        commands = {file for name, (file, _) in COMMANDS.items() if name in words}
        found |= modules("art_cli.cli.main", *(f"art_cli.cli.{c.split(':')[0]}" for c in commands))
    return found


@cache
def tracked() -> tuple[Path, ...]:
    """Return the files that git knows."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(p for name in done.stdout.splitlines() if (p := ROOT / name).is_file())


def digest(test: Path) -> str:
    """Return the digest of all that a test file depends on."""
    pins = [PROJECT["dependencies"], PROJECT["optional-dependencies"]]
    found = hashlib.sha256(json.dumps(pins).encode())
    for path in files_of(test):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(ROOT)} {content}\n".encode())
    return found.hexdigest()


def main() -> int:
    """Print what is due, or record what has passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args().record
    known = {p.relative_to(ROOT).as_posix(): p for p in suites()}
    passed = {k: v for k, v in json.loads(PASSED.read_text()).items() if k in known}
    if asked:
        names = [p.as_posix() for p in asked if p.as_posix() in known]
        passed |= {name: digest(known[name]) for name in names}
        PASSED.write_text(json.dumps(passed, indent=1, sort_keys=True) + "\n")
        return 0
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if TESTS not in path.parents or not path.name.startswith("test_"):
            continue
        if name in passed and "CI_ALL" not in os.environ and passed[name] == digest(path):
            print(f"skipped: {name} is unchanged since it passed", file=sys.stderr)
        else:
            print(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
