"""Objects that a config names as FILE.py:NAME: a loss, an advantage, a sampler, a judge.

The user's code may raise, or return an invalid value. Both are reported with the config key and the
line of the code.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import StatisticsError
from typing import Any

from art_cli.envs.registry import find
from art_cli.errors import ArtError, UsageError, blame


def named(key: str, name: str, builtin: Mapping[str, Any]) -> Any:
    """Return the object that a name at this config key stands for. Raises UsageError."""
    if name in builtin:
        return builtin[name]
    try:
        return find(name)
    except UsageError as e:
        raise UsageError(f"{key}: {e}") from None


def place_of(function: Callable[..., Any]) -> str:
    """Return `file:line` of a function, or its repr if unknown."""
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return repr(function)


@contextmanager
def blaming(key: str, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Convert errors of the user's function, except errors of ours, into UsageError."""
    try:
        yield
    except ArtError:  # raised on purpose
        raise
    except Exception as e:
        place = place_of(function)
        said = blame(e, Path(place.rpartition(":")[0]))
        if isinstance(e, TypeError) and not _is_from(e, function):  # it never began
            said = f"{place}: {type(e).__name__}: {e}"
        raise UsageError(f"{key}: {name} failed: {said}") from e


def _is_from(error: BaseException, function: Callable[..., Any]) -> bool:
    """Return whether an error was raised in a function, or in code that it called."""
    code = getattr(function, "__code__", None)
    return any(frame.f_code is code for frame, _ in traceback.walk_tb(error.__traceback__))


def is_plain(error: BaseException | None, function: Callable[..., Any]) -> bool:
    """Return whether an error shows that a function is wrong for any input.

    It has a wrong signature, uses a name or an attribute of our types that does not exist, or
    divides by a value that is often zero. Other errors may come from the made-up input of a trial.
    """
    if isinstance(error, TypeError):
        return not _is_from(error, function)
    if isinstance(error, AttributeError):
        return type(error.obj).__module__.startswith("art_cli.")
    return isinstance(error, NameError | ImportError | ZeroDivisionError | StatisticsError)
