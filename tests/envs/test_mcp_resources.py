"""Resources of real MCP servers, made with the official SDK, as two tools."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from spoken import Says, call

from art_cli import UsageError
from art_cli.rollout.env_class import env_in
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import rollout
from art_cli.types import Trajectory
from art_envs.mcp_tools.env import McpTools
from art_envs.mcp_tools.settings import McpSettings

pytest.importorskip("mcp")

SERVER = '''
import sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("library")

@server.resource("docs://hours", name="hours", mime_type="text/plain")
def hours() -> str:
    """When we are open,
    and when not."""
    return "From 9 to 5."

@server.resource("docs://logo", name="logo", mime_type="image/png")
def logo() -> bytes:
    return bytes(1000)

@server.resource("docs://long", name="long")
def long() -> str:
    return "x" * 5000

@server.resource("notes://{owner}", name="notes")
def notes(owner: str) -> str:
    return f"{owner}: milk"

if "tools" in sys.argv:
    @server.tool()
    def read_resource(uri: str) -> str:
        """The server's own."""
        return "my own"

    @server.tool()
    def mcp_read_resource() -> str:
        """Another."""
        return "another"

server.run()
'''
BARE = """
import asyncio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, Tool

async def listed(context, params):
    return ListToolsResult(tools=[Tool(name="count", input_schema={"type": "object"})])

async def main():
    server = Server("bare", on_list_tools=listed)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "bare.py").write_text(BARE)
    (tmp_path / "tasks.jsonl").write_text('{"question": "How many?", "answer": 2}\n' * 2)
    return tmp_path


def args(folder: Path, *how: str, file: str = "server.py", **more: Any) -> dict[str, Any]:
    known = {"input": "question", "target": "answer", "grade": "number", "val_share": 0}
    known |= {"data": str(folder / "tasks.jsonl"), "test_share": 0}
    return known | {"command": ("{python}", str(folder / file), *how), "resources": True} | more


def play(env: Any, cfg: Any, *turns: str) -> Trajectory:
    async def go() -> Trajectory:
        return await rollout(env, cfg, next(iter(env.scenarios(cfg, "train"))), Says(*turns))

    played = asyncio.run(go())
    assert played.reward == 1.0, played.error
    return played


def names(t: Trajectory) -> list[str]:
    return [tool["function"]["name"] for tool in t.tools]


READS = [
    call("list_resources"),
    call("read_resource", uri="docs://hours"),
    call("read_resource", uri="docs://logo"),
    call("read_resource", uri="docs://long"),
    call("read_resource", uri="notes://Ann"),
]


@pytest.mark.parametrize("python", [None, sys.executable], ids=["here", "env.python"])
def test_resources_are_listed_and_read_within_bounds(folder: Path, python: str | None) -> None:
    """Also of a server without tools; what is no text is named, not shown."""
    env: Any = env_in("mcp", python)
    t = play(env, env.Config(**args(folder, max_result=400)), *READS)
    assert names(t) == ["list_resources", "read_resource"]
    listed, *read = [str(step.result) for step in t.steps[:5]]
    assert listed.splitlines() == [
        "docs://hours  hours (text/plain): When we are open, and when not.",
        "docs://logo  logo (image/png)",
        "docs://long  long (text/plain)",
        "notes://{owner}  notes (text/plain, a template)",
    ]
    hours, logo, long, notes = read
    assert (hours, notes) == ("From 9 to 5.", "Ann: milk")
    assert logo == "[image/png docs://logo, 1000 bytes]"
    assert long == "x" * 400 + "\n... (4600 more characters are not shown)"


def test_what_cannot_be_read_is_an_error_that_the_policy_reads(folder: Path) -> None:
    turns = (
        call("read_resource", uri="docs://none"),
        call("read_resource"),
        call("read_resource", uri=1),
        call("list_resources", page=2),
    )
    t = play(McpTools, McpSettings(**args(folder)), *turns)
    assert [step.is_error for step in t.steps] == [True] * 4 + [False]
    none, *wrong, lists, _ = [str(step.result) for step in t.steps]
    assert "docs://none" in none
    assert wrong == ["error: read_resource takes the text uri, and nothing else"] * 2
    assert lists == "error: list_resources takes no arguments"
    assert t.num_invalid >= 3


def test_the_servers_own_tools_keep_their_names(folder: Path) -> None:
    turns = [call(f"{'mcp_' * n}read_resource", uri="docs://hours") for n in (0, 2)]
    t = play(McpTools, McpSettings(**args(folder, "tools")), *turns)
    assert names(t) == [
        *("read_resource", "mcp_read_resource"),
        *("list_resources", "mcp_mcp_read_resource"),
    ]
    assert [s.result for s in t.steps[:2]] == ["my own", "From 9 to 5."]


def test_with_the_tools_that_are_named_resources_come_too(folder: Path) -> None:
    cfg = McpSettings(**args(folder, "tools", tools=("read_resource",), shared=True))
    assert names(play(McpTools, cfg)) == [
        "read_resource",
        "list_resources",
        "mcp_mcp_read_resource",
    ]


def test_they_are_not_offered_unless_asked_for(folder: Path) -> None:
    cfg = McpSettings(**args(folder, "tools", resources=False))
    assert names(play(McpTools, cfg)) == ["read_resource", "mcp_read_resource"]
    with pytest.raises(UsageError, match="offers no tools"):
        asyncio.run(check_env(McpTools, McpSettings(**args(folder, resources=False))))


def test_a_server_that_has_none_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"env\.args\.resources: the MCP server .* has none"):
        asyncio.run(check_env(McpTools, McpSettings(**args(folder, file="bare.py"))))
