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
from art_cli.envs.base import Done, Env, NoServices
from art_cli.envs.tools import Tool
from art_cli.errors import UsageError
from art_cli.rollout.env_worker.remote import env_in
from art_cli.rollout.episode import Episode, tools_in
from art_cli.types import Scenario, Trajectory

SYSTEM = "Use the tools to answer. Give the answer alone."
COLUMNS = {"input": "question", "target": "answer", "split": "split"}  # of the file
ALL_CALLS = 24 * 3600.0  # seconds of a session: each call has a deadline of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A call and what came back."""

    tool: str
    arguments: dict[str, Any]
    result: str
    is_error: bool = False


class ToolSession:
    """The tools of one env that has begun."""

    def __init__(self, env: Env, episode: Episode) -> None:
        self.tools: list[Tool] = tools_in(env.tools())
        self._episode = episode

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Return what a call gives. Raises what the env raises where a server fails."""
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
    ) -> None:
        """`more` are KEY=VALUE of env.args, `python` is env.python.

        Raises UsageError, ConfigError.
        """
        self.use = use
        self._python = python
        self._env = env_in(use, python)
        self._args = [f"{name}={json.dumps(value)}" for name, value in settings.items()]
        self._args += more
        with tempfile.TemporaryDirectory() as folder:
            one = Path(folder) / "one.jsonl"  # an env of tasks begins with a task
            one.write_text(json.dumps({"question": "?", "answer": "?", "split": "train"}))
            given = {**COLUMNS, "data": str(one), "grade": "exact", "val_share": 0, "test_share": 0}
            args = [f"{name}={json.dumps(value)}" for name, value in given.items()]
            args += self._args
            loaded = load_env(use, args, lambda *use: env_in(*use).Config, python)
            self._settings = loaded.env_settings
            self._scenario: Scenario = next(iter(self._env.scenarios(self._settings, "train")))
        self.is_fresh = getattr(self._settings, "command", None) is not None
        if self.is_fresh and getattr(self._settings, "shared", False):
            raise UsageError("shared=true has no place here: each task is tried on fresh servers")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ToolSession]:
        """Begin an episode on a fresh server, or with a session of its own. Raises UsageError."""
        env = self._env(self._scenario, self._settings)
        env.services = NoServices()
        env.episode_timeout = ALL_CALLS  # type: ignore[misc] (of this one)
        episode = Episode(env, Trajectory(scenario=self._scenario))
        try:
            await episode.start()
            yield ToolSession(env, episode)
        finally:
            await episode.close()

    def section(self, data: Path, grade: str) -> str:
        """Return the section `env` of a config that trains on a file of tasks, as YAML."""
        args = [arg.partition("=") for arg in self._args]
        lines = [f"    {name}: {value}" for name, _, value in args]
        lines += [
            f"    data: {json.dumps(str(data))}",
            *(f"    {k}: {v}" for k, v in COLUMNS.items()),
        ]
        lines += [f"    grade: {grade}", f"    system: {SYSTEM}"]
        python = [f"  python: {json.dumps(self._python)}"] if self._python else []
        return "\n".join(["env:", f"  use: {self.use}", *python, "  args:", *lines])
