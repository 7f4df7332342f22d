"""What keeps the program easy to read: names that are unique, files that stay short."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import art_cli

ROOT = Path(art_cli.__file__).parent
FILES = [p for p in sorted(ROOT.rglob("*.py")) if "template" not in p.parts]
LONGEST_FILE, LONGEST_FUNCTION = 350, 60  # lines, without imports
# Those that are longer, and how long. A number here may only fall.
LONG_FILES = {
    "backends/cloud/skypilot.py": 367,
}
LONG_FUNCTIONS = {
    "cli/deploy.py:deploy": 78,
    "cli/eval.py:evaluate_command": 80,
    "cli/run.py:run": 79,
}


def found() -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of the program, with its file."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield path.relative_to(ROOT).as_posix(), node


def test_no_class_name_stands_for_two_things() -> None:
    names = Counter(
        node.name
        for _, node in found()
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, num in names.items() if num > 1] == []


def length_of(path: Path) -> int:
    """Return the lines of a file without its imports: those say where it stands, not its size."""
    text = path.read_text(encoding="utf-8")
    heads = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    return text.count("\n") - sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in heads)


def test_files_stay_short() -> None:
    lengths = {p.relative_to(ROOT).as_posix(): length_of(p) for p in FILES}
    long = {name: num for name, num in lengths.items() if num > LONGEST_FILE}
    grown = {name: num for name, num in long.items() if num > LONG_FILES.get(name, 0)}
    assert grown == {} and set(LONG_FILES) == set(long), "split a file by its subject"


def test_functions_stay_short() -> None:
    lengths = {
        f"{file}:{node.name}": node.end_lineno - node.lineno + 1
        for file, node in found()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    }
    long = {name: num for name, num in lengths.items() if num > LONGEST_FUNCTION}
    grown = {name: num for name, num in long.items() if num > LONG_FUNCTIONS.get(name, 0)}
    assert grown == {} and set(LONG_FUNCTIONS) == set(long), "split a file by its subject"


def test_every_room_says_what_it_is_for() -> None:
    rooms = [p for p in FILES if p.name == "__init__.py"]
    silent = [p for p in rooms if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert [p.parent.name for p in silent] == []
