"""The env whose tools come from an MCP server, and its tasks from a file.

user        How many notes does Ann have?
assistant   <tool_call>{"name": "list_notes", "arguments": {"owner": "Ann"}}</tool_call>
tool        milk, stamps
assistant   She has 2.                                      grade: number  ->  1
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from art_cli import Message, Scenario, Tool, Trajectory
from art_envs.mcp_tools.server import Server, ServerError, connected
from art_envs.mcp_tools.settings import McpSettings
from art_envs.mcp_tools.shared import SharedServer, shared_server
from art_envs.tasks.env import TaskEnv
from art_envs.tasks.settings import TaskSettings

SPARE = 10.0  # seconds beyond a call's own deadline; a server that is closed takes up to 7


class McpTools(TaskEnv):
    """Tools from an MCP server, tasks from a file: no Python to write."""

    Config = McpSettings
    cfg: McpSettings

    def __init__(self, scenario: Scenario, cfg: McpSettings) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.tool_timeout = cfg.call_timeout + SPARE  # type: ignore[misc] (of this server)
        self.server: Server | None = None
        self.shared: SharedServer | None = None
        self.stack = AsyncExitStack()

    async def start(self) -> list[Message]:
        """Start the server, or reach it, and return the question."""
        if self.cfg.shared:
            self.shared = shared_server(self.cfg)
            self.server = await self.shared.server()
        else:
            self.server = await self.stack.enter_async_context(connected(self.cfg))
        return self.opening()

    def tools(self) -> list[Tool]:
        """Return what the server offers."""
        return [] if self.server is None else list(self.server.tools)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Hand a call to the server; what it refuses is for the model to read."""
        assert self.server
        try:
            return await self.server.call(name, arguments)
        except ServerError:
            self._give_up()
            raise

    async def score(self, trajectory: Trajectory) -> float | None:
        """Grade the last words, if the server is as it was: else the episode says nothing."""
        assert self.server
        try:
            await self.server.check()
        except ServerError:
            self._give_up()
            raise
        return await asyncio.to_thread(self.graded)

    async def close(self) -> None:
        """End the server, unless others use it."""
        await self.stack.aclose()

    @classmethod
    def demonstrations(cls, cfg: TaskSettings, num: int) -> Iterable[list[Message]]:
        """Return none: how the tools are used, the file does not say."""
        return ()

    def _give_up(self) -> None:
        if self.shared:
            self.shared.give_up()
