"""An env that stops in the debugger before each of its calls."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from art_cli.envs.base import Env
from art_cli.envs.tools import tools_of
from art_cli.terminal.text import say

NEVER = 1e6  # seconds: a breakpoint must not exceed a deadline
OWN = ("start", "reply", "call_tool", "score")


def stopping(env: type[Env]) -> type[Env]:
    """Return the env with a breakpoint before `start`, `reply`, `score` and each tool."""
    names = {*OWN, *(tool.method for tool in tools_of(env).values())}

    def __init__(self: Env, *arguments: Any) -> None:
        env.__init__(self, *arguments)
        for name in names:
            setattr(self, name, _stopped(self, name, getattr(self, name)))

    body = {
        "__init__": __init__,
        "__module__": env.__module__,
        "__doc__": env.__doc__,
        "tool_timeout": NEVER,
        "episode_timeout": NEVER,
    }
    return type(env.__name__, (env,), body)


def _stopped(env: Env, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with a breakpoint before it. There, the variable `env` is the env."""

    def tell(env: Env, *arguments: Any, **named: Any) -> None:
        given = [f"{a!r:.60}" for a in arguments] + [f"{k}={v!r:.60}" for k, v in named.items()]
        say(f"\n{name}({', '.join(given)})   (s: step into it, c: go on, p env, q: end)")

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def waiting(*arguments: Any, **named: Any) -> Any:
            tell(env, *arguments, **named)
            breakpoint()
            return await method(*arguments, **named)

        return waiting

    @functools.wraps(method)
    def plain(*arguments: Any, **named: Any) -> Any:
        tell(env, *arguments, **named)
        breakpoint()
        return method(*arguments, **named)

    return plain
