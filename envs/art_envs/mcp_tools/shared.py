"""One server for all episodes of an event loop.

A client must be closed in the task that opened it, and episodes come and go. So a task of its own
holds the server. It ends with the loop, which cancels it, or when the server fails: the episode
that begins next starts another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

from art_cli import Tool
from art_envs.mcp_tools.server import Server, connected
from art_envs.mcp_tools.settings import McpSettings
from art_envs.tasks.with_tools import ServerError

Key = tuple[Any, ...]


class SharedServer:
    """A server, and the task that keeps it open."""

    def __init__(self, cfg: McpSettings) -> None:
        self._ready: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        self._failed = asyncio.Event()
        self._task = asyncio.ensure_future(self._hold(cfg))

    async def server(self) -> Server:
        """Return the server once it runs. Raise UsageError if it does not start."""
        return await asyncio.shield(self._ready)

    def give_up(self) -> None:
        """Close the server, because it failed."""
        self._failed.set()

    @property
    def is_usable(self) -> bool:
        """Whether the server runs or is being started."""
        return not self._failed.is_set() and not self._task.done()

    async def _hold(self, cfg: McpSettings) -> None:
        try:
            async with connected(cfg) as server:
                self._ready.set_result(server)
                await self._failed.wait()
        except Exception as e:
            if not self._ready.done():
                self._ready.set_exception(e)
                self._ready.exception()  # nobody may be waiting any more
        finally:
            self._failed.set()
            self._ready.cancel()


class Borrowed:
    """A shared server as used by one episode. A failing server is closed."""

    def __init__(self, held: SharedServer, server: Server) -> None:
        self._held = held
        self._server = server
        self.tools: list[Tool] = server.tools

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """See ToolSource."""
        try:
            return await self._server.call(name, arguments)
        except ServerError:
            self._held.give_up()
            raise

    async def check(self) -> None:
        """See ToolSource."""
        try:
            await self._server.check()
        except ServerError:
            self._held.give_up()
            raise


@asynccontextmanager
async def borrowed(cfg: McpSettings) -> AsyncIterator[Borrowed]:
    """Yield the server that all episodes of this loop share. Raise UsageError like `connected`."""
    held = shared_server(cfg)
    yield Borrowed(held, await held.server())


_running: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Key, SharedServer]]
_running = WeakKeyDictionary()


def shared_server(cfg: McpSettings) -> SharedServer:
    """Return the server of these settings on this loop, and start it if there is none."""
    here = _running.setdefault(asyncio.get_running_loop(), {})
    key = (cfg.command, cfg.url, tuple(cfg.headers.items()), cfg.pass_env, cfg.tools, cfg.resources)
    found = here.get(key)
    if found is None or not found.is_usable:
        found = here[key] = SharedServer(cfg)
    return found
