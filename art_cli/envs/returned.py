"""Checks of the values that an env's methods return. Errors name the method's file and line."""

from __future__ import annotations

import inspect
import math
from numbers import Real
from typing import Any

from art_cli.envs.base import Env
from art_cli.envs.place import place_of
from art_cli.envs.tools import Tool, tools_of
from art_cli.errors import PlacedError
from art_cli.keys import short_repr
from art_cli.system.untrusted import MAX_TEXT, UntrustedValueError, check_json, check_text
from art_cli.types import Message

ROLES = ("system", "user", "assistant", "tool")


def wrong(env: Env, method: str, what: str) -> PlacedError:
    """Return the error for a method that returned a value of the wrong type."""
    return PlacedError(f"{place_of(type(env), method)}{what}")


def reward_of(env: Env, value: Any) -> float | None:
    """Return the reward that `score()` returned. Raises PlacedError."""
    if value is None:
        return None
    number = _number(value)
    if number is None:
        what = f"score() returned {_said(value)}; a reward is a number{_hint(value)}"
        raise wrong(env, "score", what)
    if not math.isfinite(number):
        raise wrong(env, "score", f"score() returned {number}; a reward must be a finite number")
    return number


def metrics_of(env: Env) -> dict[str, float]:
    """Return the metrics that the env left in `self.metrics`. Raises PlacedError."""
    found: dict[str, float] = {}
    for name, value in env.metrics.items():
        number = _number(value)
        if number is None:
            what = f"self.metrics[{name!r:.100}] is {_said(value)}; a metric is a number"
            raise wrong(env, "score", what)
        found[text_of(env, "score", "the name of a metric", name)] = number
    return found


def tool_result(env: Env, name: str, value: Any) -> str:
    """Convert a tool's return value to the text that the model reads. Raises PlacedError."""
    method = spec.method if (spec := tools_of(type(env)).get(name)) else "call_tool"
    if not isinstance(value, str) and (why := _unreadable(value)):
        raise wrong(env, method, f"tool {name}() returned {_said(value)}; {why}")
    try:
        text = str(value)
    except ValueError as e:  # an integer with more digits than Python prints
        raise wrong(env, method, f"tool {name}() returned no readable text: {e}") from None
    return text_of(env, method, f"tool {name}()", text)


def reply_of(env: Env, value: Any) -> str:
    """Return the text that `reply()` returned. Raises PlacedError."""
    if not isinstance(value, str):
        what = f"reply() returned {_said(value)}; expected text or Done(){_hint(value)}"
        raise wrong(env, "reply", what)
    return text_of(env, "reply", "reply()", value)


def text_of(env: Env, method: str, what: str, text: Any) -> str:
    """Check a text that the env returned as `what`. Raises PlacedError if it cannot be stored."""
    if isinstance(text, str) and len(text) > MAX_TEXT:
        said = f"{what} gave {len(text)} characters; at most {MAX_TEXT} can be read"
        raise wrong(env, method, said)
    try:
        return check_text(text)
    except UntrustedValueError as e:
        raise wrong(env, method, f"{what} gave no readable text: {e}") from None


def opening_of(env: Env, method: str, started: Any) -> list[Message]:
    """Convert the value that `method` returned to an episode's opening messages.

    Raises PlacedError.
    """
    if isinstance(started, str):
        started = [{"role": "user", "content": started}]
        if env.system:
            started.insert(0, {"role": "system", "content": env.system})
    if not isinstance(started, list) or not started or not all(map(_is_message, started)):
        what = f"{method}() returned {_said(started)}; expected text or a list of messages"
        raise wrong(env, method, what + _hint(started))
    for message in started:
        text_of(env, method, f"{method}()", message["content"])
        try:
            check_json(message)
        except ValueError as e:
            raise wrong(env, method, f"{method}() gave a message that cannot be kept: {e}") from e
    return started


def tools_in(env_class: type, found: Any) -> list[Tool]:
    """Check the tools that an env offers in an episode. Raises PlacedError."""

    def refused(what: str) -> PlacedError:
        return PlacedError(f"{place_of(env_class, 'tools')}{what}")

    if not isinstance(found, list) or not all(isinstance(tool, Tool) for tool in found):
        raise refused(
            f"tools(), or tools_of() of a game, returned {short_repr(found)}; "
            "expected a list of Tool"
        )
    names = [tool.name for tool in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise refused(f"tools() gives two tools with the name {twice!r:.200}")
    for tool in found:
        try:
            check_text(tool.description)
            check_json(tool.schema())
        except ValueError as e:
            raise refused(f"the tool {tool.name!r:.200} cannot be described: {e}") from None
    return found


def _number(value: Any) -> float | None:
    """Convert a scalar of Python, NumPy or PyTorch to a float; None if the value is no number."""
    is_scalar = isinstance(value, Real) or getattr(value, "shape", None) == ()
    try:
        return float(value) if is_scalar else None
    except (TypeError, ValueError, OverflowError):
        return None


def _said(value: Any) -> str:
    """Return the value and its type, for a message."""
    if value is None:
        return "None"
    try:
        text = short_repr(value)
    except Exception:  # the user's class, or an integer too long to print
        text = "a value that cannot be shown"
    return f"{text} ({type(value).__name__})"


def _hint(value: Any) -> str:
    """Return what the author most likely forgot."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that it was never awaited
        return ": an `await` is missing"
    if isinstance(value, tuple | list | dict):
        return ": put what else is to be logged into self.metrics"
    return ""


def _unreadable(value: Any) -> str:
    """Return the reason why a value cannot be shown to a model as text, or "" if it can."""
    if inspect.isawaitable(value):
        return f"a tool returns text{_hint(value)}"
    if hasattr(value, "__next__") or hasattr(value, "__anext__"):
        return "a tool returns text: join what it yields"
    kind = type(value)
    if callable(value) or (kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__):
        return "a tool returns text, and this object has none but its address"
    return ""


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") in ROLES
        and isinstance(message.get("content"), str)
    )
