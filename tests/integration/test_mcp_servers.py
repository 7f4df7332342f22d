"""The official MCP servers of docs/mcp.md, each in an episode of the env `mcp`."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from own_venv import ROOT, node_modules_with, python_with

from art_cli.preflight.envs.play import play_one
from art_cli.preflight.envs.players import Repeater, call_text
from art_cli.types import Trajectory
from art_envs.mcp_tools.env import McpTools
from art_envs.mcp_tools.settings import McpSettings

PAGE = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"^\| (\w+) \| `(.* ?(?:npx|uvx) .*)` \|$", PAGE, re.M))
PACKAGES = [re.findall(r"(?:npx -y|uvx) ([^ ']+)", line)[0] for line in COMMANDS.values()]
NPM = dict(each.rsplit("@", 1) for each in PACKAGES if each.startswith("@"))
ENTITY = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
TOKYO = {"source_timezone": "Asia/Tokyo", "target_timezone": "Asia/Kathmandu", "time": "09:30"}
# What is called, and a part of what comes back.
CALLS: dict[str, list[tuple[str, dict[str, Any], str]]] = {
    "everything": [
        ("get-sum", {"a": 2, "b": 3}, "The sum of 2 and 3 is 5."),
        ("get-tiny-image", {}, "[image/png]"),
        ("get-sum", {"a": "two"}, "error"),
    ],
    "memory": [
        ("read_graph", {}, '"entities": []'),  # of another episode there is nothing
        ("create_entities", {"entities": [ENTITY]}, "likes tea"),
        ("search_nodes", {"query": "tea"}, "Ann"),
    ],
    "filesystem": [
        ("read_text_file", {"path": "a.txt"}, "the first"),
        ("write_file", {"path": "a.txt", "content": "another"}, "Successfully wrote"),
        ("read_text_file", {"path": "/etc/passwd"}, "denied"),
    ],
    "time": [
        ("convert_time", TOKYO, "06:15"),
        ("get_current_time", {"timezone": "Nowhere"}, "Invalid timezone"),
    ],
}


def _installed(command: str) -> str:
    """Return a command that starts what the tests have installed, in the place of a fetch."""
    if "uvx" in command:
        [package] = [each for each in PACKAGES if not each.startswith("@")]
        name, version = package.rsplit("@", 1)
        binary = python_with("mcp-time", f"{name}=={version}").parent / name
        return command.replace(f"uvx {package}", shlex.quote(str(binary)))
    if shutil.which("npm") is None:
        pytest.skip("there is no npm on this machine")
    wanted = json.dumps({"private": True, "dependencies": NPM})
    binaries = node_modules_with("mcp-servers", wanted) / ".bin"
    fetched = r"npx -y @modelcontextprotocol/(server-\w+)@[\d.]+"
    return re.sub(fetched, rf"{binaries}/mcp-\1", command)


@pytest.mark.parametrize("server", COMMANDS)
def test_an_official_server_is_played(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("the first")
    rows = [json.dumps({"question": f"{n} and 1?", "answer": n + 1}) for n in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows))
    cfg = McpSettings(
        command=_installed(COMMANDS[server]),
        data=str(tmp_path / "tasks.jsonl"),
        input="question",
        target="answer",
        grade="number",
        val_share=0,
        test_share=0,
    )
    monkeypatch.chdir(tmp_path)
    scenario = next(iter(McpTools.scenarios(cfg, "train")))
    right = str(json.loads(rows[int(scenario.data["input"].split()[0])])["answer"])
    turns = [call_text(name, arguments) for name, arguments, _ in CALLS[server]] + [right]

    async def play() -> Trajectory:
        played = await play_one(McpTools, cfg, scenario, lambda _: Repeater(turns))
        return played.trajectory

    for _ in range(2):  # the second as the first: nothing is kept from one to the other
        t = asyncio.run(play())
        assert t.error is None and t.reward == 1.0
        results = [m["content"] for m in t.messages if m["role"] == "tool"]
        for result, (_, _, part) in zip(results, CALLS[server], strict=True):
            assert part in result
    assert (tmp_path / "data" / "a.txt").read_text() == "the first"


def test_every_server_has_calls() -> None:
    assert list(COMMANDS) == list(CALLS)
