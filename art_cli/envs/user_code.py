"""Plugins: objects that a config names as FILE.py:NAME, package.module:NAME or by an entry point.

A loss, an advantage and a sampler are plugins; so are a judge, a tracker, an engine, an agent type
and a deploy target, which are classes that implement a protocol. The user's code may raise, or
return what does not fit. Both are told with the key of the config and the line of the code.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from statistics import StatisticsError
from typing import Any, TypeVar

from pydantic.errors import PydanticUserError

from art_cli.config.load import read_settings
from art_cli.envs.base import NoSettings
from art_cli.envs.registry import find
from art_cli.errors import ArtError, UsageError, blame

T = TypeVar("T")


def named(key: str, name: str, builtin: Mapping[str, Any]) -> Any:
    """Return the object that a name at this config key stands for. Raises UsageError."""
    if name in builtin:
        return builtin[name]
    try:
        return find(name)
    except UsageError as e:
        raise UsageError(f"{key}: {e}") from None


def class_named(key: str, name: str, protocol: type, made_of: tuple[str, ...]) -> type:
    """Return the class that a key of the config names.

    It must be made of these arguments and have each method of the protocol: `async` where the
    protocol's is, and taking its arguments. Raises UsageError with all that it lacks.
    """
    found = named(key, name, {})
    if not inspect.isclass(found):
        raise UsageError(f"{key}: {name} is no class; name one that implements {protocol.__name__}")
    # A class that inherits from a protocol, and has no __init__, seems to take anything.
    takes = _takes(found, made_of, {}) and getattr(found.__init__, "__module__", "") != "typing"
    made = [] if takes else [f"is not made as {_call(found, made_of)}"]
    if lacks := [*made, *misfits(found, protocol)]:
        what = f"{name} ({place_of(found)}) does not implement {protocol.__name__}"
        raise UsageError(f"{key}: {what}: it {'; it '.join(lacks)}")
    return found


def make_plugin(key: str, name: str, protocol: type, **made_of: Any) -> Any:
    """Return an instance of the class that a key names, with the attributes of the protocol.

    Raises UsageError where the class does not fit, where making it fails, and where it has not
    set an attribute.
    """
    found = class_named(key, name, protocol, tuple(made_of))
    properties = {n: value for n, value in vars(protocol).items() if isinstance(value, property)}
    inherited = {n for n, value in properties.items() if getattr(found, n, None) is value}
    attributes = properties.keys() | inspect.get_annotations(protocol).keys()
    init: Any = found.__init__ if inspect.isfunction(found.__init__) else found
    with blaming(key, name, init):
        made = found(*made_of.values())
        missing = sorted(inherited | {n for n in attributes if not hasattr(made, n)})
    if missing:
        lacks = f"its __init__ does not set {', '.join(missing)}"
        raise UsageError(f"{key}: {name} ({place_of(found)}): {lacks}; see {protocol.__name__}")
    return made


def settings_of(section: str, found: type, args: Mapping[str, Any]) -> Any:
    """Return the `args` of a section as the class's own Config, a dataclass. Raises UsageError."""
    config = getattr(found, "Config", NoSettings)
    if not is_dataclass(config):
        raise UsageError(f"{section}: {found.__name__}.Config must be a dataclass")
    try:
        return read_settings(config, args, section)
    except (PydanticUserError, NameError, TypeError) as e:
        raise UsageError(
            f"{section}: {found.__name__}.Config must be a dataclass of what YAML can say: {e}"
        ) from None


def misfits(found: type, protocol: type) -> list[str]:
    """Return what a class lacks of the methods of a protocol: what follows "it", for each."""
    methods = [m for n, m in vars(protocol).items() if inspect.isfunction(m) and n[0] != "_"]
    return [said for method in methods if (said := _misfit(found, method))]


def _misfit(found: type, method: Callable[..., Any]) -> str:
    """Return what is wrong with the method of this name in a class, or ""."""
    name, own = method.__name__, getattr(found, method.__name__, None)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    words = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    call = _call(method, [*words, *(f"{k}=..." for k in keywords)])
    is_async = inspect.iscoroutinefunction(method)
    if own is None:
        return f"has no {'async ' * is_async}{call}"
    if not inspect.isfunction(own):  # a class method or another callable: known when it is called
        return ""
    if inspect.iscoroutinefunction(own) != is_async:
        return f"has a {name}() that must {'' if is_async else 'not '}be `async def`"
    return "" if _takes(own, ["self", *words], keywords) else f"cannot be asked for {call}"


def _call(of: Callable[..., Any], words: Iterable[str]) -> str:
    return f"{of.__name__}({', '.join(words)})"


def _takes(function: Callable[..., Any], words: Sequence[str], keywords: dict[str, None]) -> bool:
    """Return whether a function or a class can be called with so many arguments and these names."""
    try:
        inspect.signature(function).bind(*words, **keywords)
    except TypeError:
        return False
    except ValueError:  # a type of C, which does not say
        return True
    return True


def place_of(function: Callable[..., Any]) -> str:
    """Return `file:line` of a function, or its repr if unknown."""
    try:
        return f"{inspect.getsourcefile(function)}:{inspect.getsourcelines(function)[1]}"
    except (OSError, TypeError):
        return repr(function)


@contextmanager
def blaming(
    key: str, name: str, function: Callable[..., Any], error: type[ArtError] = UsageError
) -> Iterator[None]:
    """Turn what the user's function raises, unless it is an ArtError, into an `error`."""
    try:
        yield
    except ArtError:  # raised on purpose
        raise
    except (Exception, SystemExit) as e:
        place = place_of(function)
        said = blame(e, Path(place.rpartition(":")[0]))
        if isinstance(e, TypeError) and not _is_from(e, function):  # it never began
            said = f"{place}: {type(e).__name__}: {e}"
        raise error(f"{key}: {name} failed: {said}") from e


async def in_time(
    what: str, seconds: float, call: Awaitable[T], error: type[ArtError], *, setting: str = ""
) -> T:
    """Return the result of a call of the user's code, named `what` in errors.

    Raises `error` if it takes longer than `seconds`, which `setting` of the config sets, if any.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            return await call
    except TimeoutError as e:
        if not deadline.expired():  # the user's code raised it
            raise
        raise error(f"{what} took more than {seconds:g} s{setting and f' ({setting})'}") from e


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
