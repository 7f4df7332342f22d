"""A digest of an env's code, including all imports from its own folder."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from art_cli.envs.base import Env


def code_digest(env_class: type[Env]) -> str:
    """Return a digest of the files that an env's code consists of."""
    if env_class.art_remote:
        return env_class.art_remote.digest
    return files_digest(_own_files(env_class))


def files_digest(files: Iterable[Path]) -> str:
    """Return a digest of the names and contents of these files."""
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(file.name.encode() + file.read_bytes())
    return total.hexdigest()[:16]


def _own_files(env_class: type[Env]) -> set[Path]:
    """Return the env's file and its direct and indirect imports from the same package or folder."""
    found: set[Path] = set()
    for base in env_class.__mro__:
        top = base.__module__.partition(".")[0]
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if file and top not in ("art_cli", "builtins"):
            home = Path(sys.modules[top].__file__ or file).parent if top in sys.modules else None
            _follow(Path(file), base.__module__, home or Path(file).parent, found)
    return found


def _follow(file: Path, module: str, home: Path, found: set[Path]) -> None:
    if file in found or file.suffix != ".py" or not file.is_relative_to(home):
        return
    if found and "site-packages" in (home.name, *file.relative_to(home).parts):
        return  # a third-party package beside or below it
    found.add(file)
    for name in _imports(file, module):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):  # a name of a module, not a module
            continue
        if spec and spec.origin:
            _follow(Path(spec.origin), name, home, found)


def _imports(file: Path, module: str) -> Iterator[str]:
    """Yield full names of possible modules that a file imports."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            parts = [*(above if node.level else []), *([node.module] if node.module else [])]
            name = ".".join(p for p in parts if p)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)
