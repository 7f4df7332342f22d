"""Resolution of names in a config to env classes and other objects."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import is_dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from art_cli.config.plugins import registered
from art_cli.envs.base import Env
from art_cli.errors import EXIT_USAGE, Interrupted, UsageError, blame, did_you_mean
from art_cli.system.watchdog import last_resort

IMPORT_SECONDS = 120.0  # what takes longer belongs into scenarios() or start()


def env_names() -> dict[str, str]:
    """Registered envs: name -> `module:Class`, by name."""
    return registered("envs")


def env_class(use: str) -> type[Env]:
    """Return the env class that `env.use` names.

    The name is a registered name, `package.module:Class` or `path/to/file.py:Class`. These forms
    are distinct, so there is never a second match. Raises UsageError with the places tried.
    """
    names = env_names()
    target = names.get(use, use)
    if ":" not in target:
        raise UsageError(
            f"no env is registered as {use!r}.{did_you_mean(use, names)} Registered are "
            f"{', '.join(names) or 'none'}; or give package.module:Class or path/to/file.py:Class"
        )
    found = find(target)
    name = target.rpartition(":")[2]
    if not (inspect.isclass(found) and issubclass(found, Env) and found is not Env):
        raise UsageError(f"{use!r}: {name} is not a subclass of art_cli.Env")
    if not is_dataclass(found.Config):
        raise UsageError(f"{use!r}: {name}.Config must be a dataclass; put @dataclass above it")
    return found


def find(target: str) -> Any:
    """Return the object `package.module:name` or `path/to/file.py:name`. Raises UsageError."""
    where, colon, name = target.rpartition(":")
    if not colon:
        raise UsageError(f"{target!r}: expected package.module:name or path/to/file.py:name")
    is_file = where.endswith(".py")
    module = _from_file(Path(where), target) if is_file else _from_package(where, target)
    found = getattr(module, name, None)
    if found is None:
        own = [n for n, v in vars(module).items() if _is_made_in(v, module)]
        raise UsageError(
            f"{target!r}: {where} has no {name!r}; it has {', '.join(own) or 'nothing'}"
        )
    return found


def describe(env: type) -> str:
    """Return the first line of the env's docstring."""
    return (inspect.getdoc(env) or "").partition("\n")[0]


def _is_made_in(value: object, module: ModuleType) -> bool:
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    return is_code and value.__module__ == module.__name__


def _from_package(name: str, use: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # find modules in the working folder, like `python -m`
    try:
        with _running(use, f"importing {name}", Path()):
            return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name and f"{name}.".startswith(f"{e.name}."):
            raise UsageError(
                f"{use!r}: there is no module {name!r}, neither installed nor under "
                f"{Path.cwd()}; a file is given as path/to/file.py:Class"
            ) from None
        raise UsageError(f"{use!r}: {name} imports {e.name!r}, which is not installed") from None


def _from_file(path: Path, use: str) -> ModuleType:
    if not os.path.isfile(path):
        raise UsageError(
            f"{use!r}: there is no file {str(path)!r} (paths are relative to the folder that art "
            f"is started in, {Path.cwd()})"
        )
    path = path.absolute()
    try:
        with _running(use, f"running {path}", path):
            return _run_file(path, path.stat().st_mtime_ns)
    except ModuleNotFoundError as e:
        raise UsageError(f"{use!r}: running {path} failed: {blame(e, path)}") from e


@contextmanager
def _running(use: str, what: str, owner: Path) -> Iterator[None]:
    """Guard an import of the user's code, which may print, fail, exit or hang. Raises UsageError.

    ModuleNotFoundError passes through to the caller, which knows the name it looked for.
    """
    doing = f"{use!r}: {what}"
    try:
        with (
            last_resort(IMPORT_SECONDS, doing, owner, EXIT_USAGE),
            redirect_stdout(sys.stderr),  # stdout is for the command's output, which may be JSON
        ):
            yield
    except ModuleNotFoundError:
        raise
    except KeyboardInterrupt as e:
        raise Interrupted(f"interrupted: {doing} was stopped: {blame(e, owner)}") from None
    except BaseException as e:  # SystemExit too
        raise UsageError(f"{doing} failed: {blame(e, owner)}") from e


@lru_cache(maxsize=64)  # a config is resolved repeatedly, with equal classes
def _run_file(path: Path, changed: int) -> ModuleType:
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))  # imports work as with `python path/to/file.py`
    name = f"art_env_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, for dataclasses and pickle
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
