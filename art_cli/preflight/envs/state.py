"""State that episodes would share.

This is: globals of the env's modules, class attributes, global random generators, environment
variables and the working folder.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from art_cli.preflight.check_result import own_modules, place_of_name

LOCKS = asyncio.Lock, asyncio.Semaphore, asyncio.Condition, asyncio.Event
UNUSUAL = 1_789_071_453  # a seed


def generators() -> dict[str, bytes]:
    """Return the state of each global random generator, by the name of its module."""
    out = {"random": pickle.dumps(random.getstate())}
    if numpy := sys.modules.get("numpy"):
        out["numpy.random"] = pickle.dumps(numpy.random.get_state())
    if torch := sys.modules.get("torch"):
        out["torch"] = torch.random.get_rng_state().numpy().tobytes()
    return out


def drawn_from(before: dict[str, bytes]) -> list[str]:
    """Return the generators whose state has changed. Modules imported since are not included."""
    now = generators()
    return [name for name in before if now[name] != before[name]]


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed every global generator inside this context, and restore its state afterwards."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = [
        random.getstate(),
        numpy and numpy.random.get_state(),
        torch and torch.random.get_rng_state(),
    ]
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed)
    if torch:
        torch.random.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        if numpy:
            numpy.random.set_state(states[1])
        if torch:
            torch.random.set_rng_state(states[2])


def snapshot(env_class: type) -> dict[str, bytes]:
    """Return a fingerprint of each piece of shared state, by name."""
    out = {f"os.environ[{name!r}]": value.encode() for name, value in os.environ.items()}
    out["the working folder"] = os.getcwd().encode()
    for module in own_modules(env_class):
        owners = [module, *(c for c in env_class.__mro__ if c.__module__ == module.__name__)]
        for owner in owners:
            for name, value in list(vars(owner).items()):
                if _is_state(name, value):
                    out[f"{_name(owner)}.{name}"] = _print_of(value)
    return out


def changed(env_class: type, before: dict[str, bytes]) -> dict[str, str]:
    """Return the state that has changed since `before`: name -> where it is defined."""
    now = snapshot(env_class)
    names = [n for n in now if now[n] != before.get(n)]
    return {n: place_of_name(env_class, n.rpartition(".")[2]) for n in names}


def _name(owner: ModuleType | type) -> str:
    """Return a name for messages. A module loaded from a file is called by its file's name."""
    file = owner.__file__ if isinstance(owner, ModuleType) else None
    return Path(file).stem if file else owner.__name__


def _is_state(name: str, value: Any) -> bool:
    plain = isinstance(value, ModuleType | type | property | classmethod | staticmethod)
    return not (name.startswith("__") or plain or inspect.isroutine(value) or callable(value))


def _print_of(value: Any) -> bytes:
    if isinstance(value, LOCKS):  # its pickle changes when it is waited for
        return repr(value).encode()
    try:
        return pickle.dumps(value)
    except Exception:  # a lock, a connection, or whatever a __reduce__ raises
        return repr(value).encode()
