"""The official MCP client over stdio, opened in start() and closed in close()."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from art_cli.envs.base import Env
from art_cli.envs.tools import ToolError, tool
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

mcp: Any = pytest.importorskip("mcp")

SERVER = """
import os, pathlib, sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")
pathlib.Path(sys.argv[1], str(os.getpid())).touch()

@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)

@server.tool()
def die() -> str:
    os._exit(1)

server.run()
"""


class Says(TurnAgent):
    """Some turns."""

    def __init__(self, *turns: str) -> None:
        self._turns = list(turns)

    async def act(self, messages: list[Message]) -> str:
        return self._turns.pop(0)

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


class Adder(Env):
    """A server an episode."""

    tool_timeout = 20.0
    folder: Path

    async def start(self) -> str:
        self.stack = AsyncExitStack()
        file = self.folder / "server.py"
        command = mcp.StdioServerParameters(
            command=sys.executable, args=[str(file), str(self.folder)], env=dict(os.environ)
        )
        self.client = await self.stack.enter_async_context(mcp.Client(command))
        return "What is 2 + 3?"

    @tool()
    async def add(self, a: int, b: int) -> str:
        """Add."""
        return (await self.client.call_tool("add", {"a": a, "b": b})).content[0].text

    @tool()
    async def die(self) -> str:
        """End the server."""
        try:
            await self.client.call_tool("die", {})
        except mcp.MCPError as e:
            raise ToolError(str(e)) from None
        return "?"

    async def score(self, trajectory: Trajectory) -> float:
        return float(trajectory.steps[0].result == "5")

    async def close(self) -> None:
        await self.stack.aclose()


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


def servers(folder: Path) -> list[int]:
    pids = [int(p.name) for p in folder.iterdir() if p.name.isdigit()]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("turn", [call("add", '{"a": 2, "b": 3}'), call("die")])
def test_a_server_an_episode_is_closed_with_it(tmp_path: Path, turn: str) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    env = type("Adder", (Adder,), {"folder": tmp_path})

    async def go() -> list[Trajectory]:
        scenarios = [Scenario(id=f"train-{i}", split="train", seed=i) for i in range(3)]
        plays = (rollout(env, None, s, Says(turn, "done")) for s in scenarios)
        return await asyncio.gather(*plays)

    played = asyncio.run(go())
    assert [t.error for t in played] == [None] * 3
    assert [t.reward for t in played] == [float("add" in turn)] * 3
    assert len([p for p in tmp_path.iterdir() if p.name.isdigit()]) == 3
    assert servers(tmp_path) == []
