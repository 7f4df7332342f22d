"""The common part of adapters: a library that is imported when it is needed, and its randomness."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import Any

from art_cli import Split

# Of each split, added to the number of a scenario: what a library makes of these seeds is disjoint
# between splits as far as the library makes different things of different seeds.
FIRST_SEED: dict[Split, int] = {"train": 0, "val": 10_000_000, "test": 20_000_000}
_one_at_a_time = threading.RLock()


def library(module: str, extra: str, how: str = "") -> ModuleType:
    """Return a library's module. Raise ValueError, which says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        if e.name and f"{module}.".startswith(f"{e.name}."):
            how = how or f"pip install 'art-cli[{extra}]'"
            raise ValueError(f"the package {extra} is not installed: {how}") from None
        raise ValueError(f"{module} needs {e.name}, which is not installed") from None


class IsolatedRandomness:
    """The random numbers of one episode, for a library that draws from those of the process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: tuple[Any, Any] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Let the process draw from these numbers, one caller at a time; then undo it.

        What the library prints goes to stderr: stdout is the command's.
        """
        with _one_at_a_time, redirect_stdout(sys.stderr):
            numpy = sys.modules.get("numpy")
            before = random.getstate(), numpy and numpy.random.get_state()
            if self._states:
                random.setstate(self._states[0])
            else:
                random.seed(self._seed)
            if numpy and self._states and self._states[1] is not None:
                numpy.random.set_state(self._states[1])
            elif numpy:
                numpy.random.seed(self._seed % 2**32)
            try:
                yield
            finally:
                self._states = random.getstate(), numpy and numpy.random.get_state()
                random.setstate(before[0])
                if numpy:
                    numpy.random.set_state(before[1])
