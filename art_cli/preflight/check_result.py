"""The result of a check, and functions that locate its place in the user's code."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from art_cli.errors import PlacedError, UsageError

DEFINITION = re.compile(r"\s*(async\s+def|def|class)\b")
Status = Literal["ok", "warning", "failed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of the report."""

    check: str = ""  # name of the check; set by the function that runs the checks
    status: Status
    what: str
    where: str = ""  # file:line, if known
    todo: str = ""  # the remedy


CheckResults = Iterator[CheckResult]


def ok(what: str) -> CheckResult:
    """Return a passed result, with a summary of what was checked."""
    return CheckResult(status="ok", what=what)


def failed(what: str, where: str = "", todo: str = "") -> CheckResult:
    """Return a result for a defect that must be fixed before the env is used."""
    return CheckResult(status="failed", what=what, where=where, todo=todo)


def warning(what: str, where: str = "", todo: str = "") -> CheckResult:
    """Return a result that is wrong unless the author of the env intends it."""
    return CheckResult(status="warning", what=what, where=where, todo=todo)


def skipped(what: str, todo: str = "") -> CheckResult:
    """Return a result for something that was not checked, with the reason."""
    return CheckResult(status="skipped", what=what, todo=todo)


def own_modules(env_class: type) -> list[ModuleType]:
    """Return the modules of the env and its bases, except those of art_cli."""
    names = dict.fromkeys(c.__module__ for c in env_class.__mro__)
    theirs = [n for n in names if n.partition(".")[0] not in ("art_cli", "builtins")]
    return [sys.modules[n] for n in theirs if n in sys.modules]


def own_files(env_class: type) -> set[str]:
    """Return the absolute source files of `own_modules`."""
    return {str(Path(m.__file__).absolute()) for m in own_modules(env_class) if m.__file__}


def place_of(env_class: type, name: str = "") -> str:
    """Return `file:line` of a method, or of the class if the method is inherited; "" if unknown."""
    if remote := getattr(env_class, "art_remote", None):
        file, _, line = remote.places.get(name, remote.places[""]).rpartition(":")
        return f"{short(file)}:{line}" if file else ""
    method = inspect.unwrap(getattr(env_class, name, env_class))
    if getattr(method, "__module__", "") == "art_cli.envs.base":
        method = env_class
    return _line_of(getattr(method, "__func__", method)) or _line_of(env_class)


def _line_of(thing: Any) -> str:
    try:
        file, (lines, first) = inspect.getsourcefile(thing), inspect.getsourcelines(thing)
    except (TypeError, OSError):
        return ""
    starts = [i for i, line in enumerate(lines) if DEFINITION.match(line)]  # after decorators
    return f"{short(file)}:{first + (starts or [0])[0]}" if file else ""


def place_of_name(env_class: type, name: str) -> str:
    """Return `file:line` of the first assignment to a name in `own_modules`, or ""."""
    for module in own_modules(env_class):
        try:
            tree = ast.parse(inspect.getsource(module))
        except (TypeError, OSError, SyntaxError):
            continue
        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                return f"{short(module.__file__)}:{node.lineno}"  # type: ignore[attr-defined]
    return ""


def where_and_what(error: BaseException, env_class: type) -> tuple[str, str]:
    """Return (`file:line` of the user's innermost frame, or "", and `Type: message`)."""
    files = own_files(env_class)
    places = [
        f"{short(f.filename)}:{f.lineno}"
        for f in traceback.extract_tb(error.__traceback__)
        if str(Path(f.filename).absolute()) in files
    ]
    if isinstance(error, UsageError | PlacedError):  # the message includes the place
        return "", str(error)
    return (places or [""])[-1], f"{type(error).__name__}: {error}"


def short(file: object) -> str:
    """Return a path as the user would type it."""
    path = Path(str(file)).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
