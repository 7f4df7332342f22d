"""Sessions with the tools of an MCP server or an HTTP API, through the env that trains on them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_cli.config.load import load_env
from art_cli.envs.base import Done, NoServices
from art_cli.envs.tools import Tool, named_tools
from art_cli.errors import UsageError
from art_cli.rollout.env_class import env_in
from art_cli.rollout.episode import Episode
from art_cli.types import Scenario, Trajectory

SYSTEM = "Use the tools to answer. Give the answer alone."
COLUMNS = {"input": "question", "target": "answer", "split": "split"}  # columns of the file
TOOLS_SETTING = {"mcp": "tools", "openapi": "operations"}  # of env.args: which are offered
HOW_TO_ALLOW = "run the server on a copy of the data and give --tools NAME,... --allow-writes"
QUICK = 10.0  # seconds of a call, unless call_timeout is given: training makes thousands of calls
ALL_CALLS = 24 * 3600.0  # seconds of a session; each call has a deadline of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A call and its result."""

    tool: str
    arguments: dict[str, Any]
    result: str
    is_error: bool = False


class ToolSession:
    """The callable tools of one env that has started."""

    def __init__(self, episode: Episode) -> None:
        self.tools: list[Tool] = episode.tools
        self._episode = episode

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Return the result of a call. Raises the env's error if the server fails."""
        message = await self._episode.call_tool(tool, arguments, turn=0)
        result = "" if isinstance(message, Done) else message["content"]
        is_error = not isinstance(message, Done) and message.get("is_error", False)
        return ToolResult(tool=tool, arguments=arguments, result=result, is_error=is_error)


class ToolsSource:
    """An env with tools of its own, as `env: {use: ..., args: ...}` names it."""

    def __init__(
        self,
        use: str,
        settings: dict[str, Any],
        more: Sequence[str] = (),
        python: str | None = None,
        tools: Sequence[str] = (),
        allow_writes: bool = False,
    ) -> None:
        """`more` are KEY=VALUE of env.args, `python` is env.python.

        Only `tools` are called, if some are named, and those that may write only if `allow_writes`.

        Raises UsageError, ConfigError.
        """
        self.use = use
        self.withheld: list[str] = []  # tools that are not called, known once a session has opened
        self._called: list[str] = []
        self._named = tools
        self._allow_writes = allow_writes
        self._python = python
        self._env = env_in(use, python)
        self._args = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        setting = TOOLS_SETTING[use]
        self._has_tools = bool(tools) or any(text.startswith(f"{setting}=") for text in more)
        self._args += more
        self._args += [f"{setting}={json.dumps(list(tools))}"] if tools else []
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "one.jsonl"  # an env of tasks needs a task to start
            one.write_text(json.dumps({"question": "?", "answer": "?", "split": "train"}))
            given = {**COLUMNS, "data": str(one), "grade": "exact", "val_share": 0, "test_share": 0}
            given["call_timeout"] = QUICK
            args = [f"{name}={json.dumps(value)}" for name, value in given.items()]
            args += self._args
            loaded = load_env(use, args, lambda *use: env_in(*use).Config, python)
            self._settings = loaded.env_settings
            self._scenario: Scenario = next(iter(self._env.scenarios(self._settings, "train")))
        if getattr(self._settings, "shared", False):
            raise UsageError(
                "shared=true has no place here: each task is tried in several sessions"
            )

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ToolSession]:
        """Open a session, with a new process if a command starts the server. Raise UsageError."""
        env = self._env(self._scenario, self._settings)
        env.services = NoServices()
        env.episode_timeout = ALL_CALLS  # type: ignore[misc] (of this one)
        episode = Episode(env, Trajectory(scenario=self._scenario))
        try:
            await episode.start()
            if not self._allow_writes:
                self._withhold(episode)
            yield ToolSession(episode)
        finally:
            await episode.close()

    def _withhold(self, episode: Episode) -> None:
        """Exclude the tools that may write.

        Raise UsageError if the user named one of them, or if no tool is left.
        """
        self.withheld = episode.withhold_writes()
        self._called = [tool.name for tool in episode.tools]
        if self.withheld and (self._named or not self._called):
            what = "these are named, and may" if self._named else "all tools may"
            raise UsageError(
                f"{what} write to the server's own data: {named_tools(self.withheld)}. They "
                f"would be called with made-up arguments: {HOW_TO_ALLOW}"
            )

    def section(self, data: Path, grade: str) -> str:
        """Return the section `env` of a config that trains on a file of tasks, as YAML."""
        called = [f"{TOOLS_SETTING[self.use]}={json.dumps(self._called)}"]
        more = called if self.withheld and not self._has_tools else []
        args = [arg.partition("=") for arg in [*self._args, *more]]
        lines = [f"    {name}: {value}" for name, _, value in args]
        lines += [
            f"    data: {json.dumps(str(data))}",
            *(f"    {k}: {v}" for k, v in COLUMNS.items()),
        ]
        lines += [f"    grade: {grade}", f"    system: {SYSTEM}"]
        python = [f"  python: {json.dumps(self._python)}"] if self._python else []
        return "\n".join(["env:", f"  use: {self.use}", *python, "  args:", *lines])
