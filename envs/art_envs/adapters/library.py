"""Helpers of all adapters: lazy imports of a library, and isolation of its random numbers."""

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

# The first seed of each split, added to the number of a scenario. The tasks of two splits differ if
# the library creates different tasks from different seeds.
FIRST_SEED: dict[Split, int] = {"train": 0, "val": 10_000_000, "test": 20_000_000}
_one_at_a_time = threading.RLock()


def library(module: str, extra: str, how: str = "") -> ModuleType:
    """Import a module of a library. Raise ValueError with the install command if it is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        if e.name and f"{module}.".startswith(f"{e.name}."):
            how = how or f"pip install 'art-cli[{extra}]'"
            raise ValueError(f"the package {extra} is not installed: {how}") from None
        raise ValueError(f"{module} needs {e.name}, which is not installed") from None


class IsolatedRandomness:
    """The random state of one episode, for a library that uses the global generators."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._states: tuple[Any, Any] | None = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Install these random states globally, for one caller at a time, and restore the old ones.

        The library's output goes to stderr, because stdout belongs to the command.
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
