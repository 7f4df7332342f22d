"""State that episodes would share: globals of the env's modules and fields of its classes."""

from __future__ import annotations

import inspect
import pickle
import random
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from art_cli.preflight.finding import own_modules, place_of_name

GENERATORS = "the random numbers of the whole process"


def snapshot(env_class: type) -> dict[str, bytes]:
    """Return what each piece of shared state is now, by name."""
    out = {GENERATORS: pickle.dumps(random.getstate())}
    if numpy := sys.modules.get("numpy"):
        out[GENERATORS] += pickle.dumps(numpy.random.get_state())
    for module in own_modules(env_class):
        owners = [module, *(c for c in env_class.__mro__ if c.__module__ == module.__name__)]
        for owner in owners:
            for name, value in list(vars(owner).items()):
                if _is_state(name, value):
                    out[f"{_name(owner)}.{name}"] = _print_of(value)
    return out


def changed(env_class: type, before: dict[str, bytes]) -> dict[str, str]:
    """Return what is not as it was: name -> where it is defined."""
    now = snapshot(env_class)
    names = [n for n in now if now[n] != before.get(n)]
    return {n: place_of_name(env_class, n.rpartition(".")[2]) for n in names}


def _name(owner: ModuleType | type) -> str:
    """Return a module's name for users, or its file: one given as a file has a name of ours."""
    file = owner.__file__ if isinstance(owner, ModuleType) else None
    return Path(file).stem if file else owner.__name__


def _is_state(name: str, value: Any) -> bool:
    plain = isinstance(value, ModuleType | type | property | classmethod | staticmethod)
    return not (name.startswith("__") or plain or inspect.isroutine(value) or callable(value))


def _print_of(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception:  # a lock, a connection, or whatever a __reduce__ raises
        return repr(value).encode()
