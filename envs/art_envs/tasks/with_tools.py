"""The common part of envs whose tasks stand in a file and whose tools come from elsewhere.

mcp       art_envs/mcp_tools/       what an MCP server offers
openapi   art_envs/openapi_tools/   the operations of an HTTP API
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Protocol

from pydantic import Field

from art_cli import Message, Scenario, Tool, Trajectory
from art_envs.tasks.env import TaskEnv
from art_envs.tasks.settings import TaskSettings

SPARE = 10.0  # seconds beyond a call's own deadline; an MCP server that is closed takes up to 7


@dataclass(frozen=True, kw_only=True)
class ToolTaskSettings(TaskSettings):
    """Settings of the use of tools, and of the tasks (`art_envs.tasks.settings`)."""

    max_turns: Annotated[int, Field(ge=1)] = 10
    max_result: Annotated[int, Field(ge=100)] = 20_000  # characters of a result that are shown
    start_timeout: Annotated[float, Field(gt=0)] = 30.0  # seconds, until the tools are known
    call_timeout: Annotated[float, Field(gt=0)] = 30.0  # seconds, of one call


class ServerError(Exception):
    """A server failed the episode: it ended, did not answer, or gave what nobody can use."""


class ToolSource(Protocol):
    """The source of an episode's tools, once it is open."""

    tools: list[Tool]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Return what a tool gives, as text. Raise ToolError where it refuses, ServerError."""
        ...

    async def check(self) -> None:
        """Raise ServerError where it is no longer what it was as the episode began."""
        ...


class ToolTaskEnv(TaskEnv):
    """One episode: a question, calls of the tools, and the words that are graded."""

    Config = ToolTaskSettings
    has_side_effects = True  # the server is the user's
    cfg: ToolTaskSettings

    def __init__(self, scenario: Scenario, cfg: ToolTaskSettings) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.tool_timeout = cfg.call_timeout + SPARE  # type: ignore[misc] (of this server)
        self.source: ToolSource | None = None
        self.stack = AsyncExitStack()

    @classmethod
    def opened(cls, cfg: Any) -> AbstractAsyncContextManager[ToolSource]:
        """Open the source of an episode's tools. Raises UsageError where that fails."""
        raise NotImplementedError

    async def start(self) -> list[Message]:
        """Open the source, and return the question."""
        self.source = await self.stack.enter_async_context(self.opened(self.cfg))
        return self.opening()

    def tools(self) -> list[Tool]:
        """Return what the source offers."""
        return [] if self.source is None else list(self.source.tools)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Hand a call on; what is refused is for the model to read."""
        assert self.source
        return await self.source.call(name, arguments)

    async def score(self, trajectory: Trajectory) -> float | None:
        """Grade the last words, if the source is as it was: else the episode says nothing."""
        assert self.source
        await self.source.check()
        return await asyncio.to_thread(self.graded)

    async def close(self) -> None:
        """Close the source."""
        await self.stack.aclose()

    @classmethod
    def demonstrations(cls, cfg: TaskSettings, num: int) -> Iterable[list[Message]]:
        """Return none: how the tools are used, the file does not say."""
        return ()


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning with a word on how much more there is."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n... ({len(text) - most} more characters are not shown)"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint to be put behind a message about an unknown name, or ""."""
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
