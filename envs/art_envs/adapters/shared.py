"""Objects that are expensive to start, shared by the episodes that are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any


class Shared:
    """A context that is open from its first to its last user, in a task of its own.

    A user who arrives while it is closing waits until it is closed, and then opens it again.
    """

    def __init__(self, context: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self._context = context
        self._num_users = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Keep the context open for one user. Raise its exception if it cannot be entered."""
        self._num_users += 1
        if self._num_users == 1:
            self._entered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._over = asyncio.Event()
            hold = self._hold(self._entered, self._over, self._task)
            self._task = asyncio.create_task(hold)
        try:
            await asyncio.shield(self._entered)
            yield
        finally:
            self._num_users -= 1
            if not self._num_users:
                self._over.set()
                assert self._task
                await self._task

    async def _hold(
        self,
        entered: asyncio.Future[None],
        over: asyncio.Event,
        before: asyncio.Task[None] | None,
    ) -> None:
        if before:
            await before
        try:
            async with self._context():
                entered.set_result(None)
                await over.wait()
        except Exception as e:
            if entered.done():
                raise
            entered.set_exception(e)
