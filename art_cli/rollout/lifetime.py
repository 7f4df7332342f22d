"""The lifetime of an env: `start()` and `close()` run in the same task.

A client built on anyio, such as MCP's, must be closed in the task that opened it. So one task runs
`start()`, sleeps during the episode, and runs `close()`. Tools, `reply()` and `score()` are called
from other tasks and may use what `start()` opened. If neither `start()` nor `close()` awaits
anything, no such task is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from art_cli.envs.base import Env
from art_cli.system.deadline import (
    DeadlineError,
    Limit,
    awaits_nothing,
    call,
    check_stuck,
    is_debugged,
    run_here,
)


class Lifetime:
    """Opens and closes one env, under deadlines."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._task: asyncio.Task[None] | None = None
        self._is_starting = False
        self._num_cancelled = 0  # how often we cancelled the task since start() began
        self._wants_end = asyncio.Event()

    async def start(self, seconds: float, how: Callable[..., Any] | None = None) -> Any:
        """Run `start()`, or the method `how` of the env instead. Return its result.

        Raises the env's exceptions, DeadlineError, EnvError.
        """
        how = how or self._env.start
        if awaits_nothing(how) and awaits_nothing(self._env.close):  # no task needed
            return await call(how, seconds=seconds, what=f"{how.__name__}()")
        started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._is_starting = True
        limit = Limit(seconds)
        self._task = limit.task(self._live(started, how))
        await limit.wait_for(started, self._task)
        if started.done():
            return started.result()
        if self._task.done():
            self._task.result()
        self._give_up_start(self._task)
        check_stuck()
        raise DeadlineError(f"{how.__name__}() did not return within {seconds:.3g} s")

    async def close(self) -> None:
        """Run `close()`. Raises the env's exceptions, DeadlineError, EnvError."""
        seconds = self._env.tool_timeout
        self._wants_end.set()
        if self._task and self._is_starting:  # its caller has stopped waiting
            self._give_up_start(self._task)
            await asyncio.sleep(0)
        if self._task is None or self._is_starting:  # there is no task to run it in
            return await call(self._env.close, seconds=seconds, what="close()")
        await asyncio.wait({self._task}, timeout=None if is_debugged() else seconds)
        if self._task.done():
            return self._task.result()
        self._task.cancel()
        check_stuck()
        raise DeadlineError(f"close() did not return within {seconds:.3g} s")

    def _give_up_start(self, task: asyncio.Task[None]) -> None:
        self._num_cancelled += 1
        task.cancel()

    def _forget_cancellation(self) -> None:
        """Undo our cancellations, so that close() can await: anyio's scopes check them on exit."""
        task = asyncio.current_task()
        assert task
        for _ in range(self._num_cancelled):
            task.uncancel()
        self._num_cancelled = 0

    async def _live(self, started: asyncio.Future[Any], how: Callable[..., Any]) -> None:
        try:
            opening = await run_here(how, what=f"{how.__name__}()")
        except asyncio.CancelledError:
            _settle(started, RuntimeError("start() was cancelled from within"))
            self._forget_cancellation()
        except Exception as e:
            _settle(started, e)
        else:
            started.set_result(opening)
        self._is_starting = False
        # A failed scope that start() opened cancels this task. Only close() can leave the scope.
        with suppress(asyncio.CancelledError):
            await self._wants_end.wait()
        await run_here(self._env.close, what="close()")


def _settle(started: asyncio.Future[Any], error: Exception) -> None:
    """Pass the error to the caller, if it still waits."""
    started.set_exception(error)
    started.exception()
