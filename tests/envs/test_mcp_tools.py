"""Real MCP servers, made with the official SDK: good ones, and those that fail in each way."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from spoken import Says, call

from art_cli import UsageError
from art_cli.config.load import load_env
from art_cli.envs.registry import env_class
from art_cli.errors import ConfigError
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import rollout
from art_cli.types import Trajectory
from art_envs.mcp_tools.env import McpTools
from art_envs.mcp_tools.settings import McpSettings

pytest.importorskip("mcp")

SERVER = '''
import os, pathlib, sys, time
folder, *how = sys.argv[1:]
pathlib.Path(folder, str(os.getpid())).touch()
print("a word on stderr", file=sys.stderr, flush=True)
if "hangs" in how:
    time.sleep(600)
import subprocess
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("notes")
notes: list[str] = []
if "crashes" in how:
    raise SystemExit("no database")

@server.tool(annotations=ToolAnnotations(read_only_hint=False))
def add(note: str) -> str:
    """Add a note."""
    notes.append(note)
    return f"{len(notes)} notes"

@server.tool()
def count() -> int:
    """Count the notes."""
    return len(notes)

@server.tool()
def fail() -> str:
    raise ToolError("there is no such note")

@server.tool()
def die() -> str:
    os._exit(3)

@server.tool()
def hang() -> str:
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(folder, str(child.pid)).touch()
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

@server.tool()
def write(length: int) -> str:
    return "x" * length

@server.tool()
def change() -> str:
    server.add_tool(len, name="another", description="?")
    return "changed"

@server.tool()
def picture() -> ImageContent:
    return ImageContent(type="image", data="aaaa", mime_type="image/png")

@server.tool()
def rows(text: str) -> CallToolResult:
    said = [TextContent(type="text", text=text)] if text else []
    found = {"rows": [{"name": "M\u00fcller", "n": 2, "paid": True}]}
    return CallToolResult(content=said, structured_content=found)

@server.tool()
def variable(key: str) -> str:
    return os.environ.get(key, "unset")

if "http" in how:
    server.run("streamable-http", port=int(how[-1]))
else:
    server.run()
'''
ROWS = '{"rows": [{"name": "M\u00fcller", "n": 2, "paid": true}]}'
Plays = Callable[..., list[Trajectory]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER)
    rows = [{"question": f"How many notes, {i}?", "answer": 2} for i in range(40)]
    (tmp_path / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path


def settings(folder: Path, *how: str, **args: Any) -> McpSettings:
    command = ("{python}", str(folder / "server.py"), str(folder), *how)
    known = {"input": "question", "target": "answer", "grade": "number", "command": command}
    return McpSettings(**known | {"data": str(folder / "tasks.jsonl")} | args)


def play(cfg: McpSettings, *episodes: tuple[str, ...]) -> list[Trajectory]:
    scenarios = list(McpTools.scenarios(cfg, "train"))

    async def go() -> list[Trajectory]:
        plays: list[Awaitable[Trajectory]] = [
            rollout(McpTools, cfg, scenario, Says(*turns))
            for scenario, turns in zip(scenarios, episodes, strict=False)
        ]
        return await asyncio.gather(*plays)

    return asyncio.run(go())


def started(folder: Path) -> list[int]:
    return [int(p.name) for p in folder.iterdir() if p.name.isdigit()]


def alive(folder: Path) -> list[int]:
    """Return the processes of servers that are still there, after a moment to go."""
    deadline = time.monotonic() + 60
    while True:
        left = [pid for pid in started(folder) if Path(f"/proc/{pid}").exists()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def listens(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def results(trajectory: Trajectory) -> list[str | None]:
    return [step.result for step in trajectory.steps]


def test_each_episode_has_a_server_of_its_own(folder: Path) -> None:
    turns = (call("add", note="milk") + call("add", note="tea"), call("count"), "There are 2.")
    one, other = play(settings(folder), turns, (call("count"), "3"))
    assert (one.error, one.reward, other.reward) == (None, 1.0, 0.0)
    assert sorted(results(one)[:2], key=str) == ["1 notes", "2 notes"] and results(other)[0] == "0"
    assert one.tools[0]["function"] == {
        "name": "add",
        "description": "Add a note.",
        "parameters": one.tools[0]["function"]["parameters"],
    }
    assert one.tools[0]["function"]["parameters"]["properties"]["note"]["type"] == "string"
    assert len(started(folder)) == 2 and alive(folder) == []


def test_what_the_model_reads_of_a_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_KEY", "k1")
    monkeypatch.setenv("OTHER_KEY", "k2")
    expected = (
        (call("fail"), True, "there is no such note"),
        (call("add", nota=1), True, "note"),
        (call("die"), True, "there is no tool 'die'; there are add, fail, picture"),
        (call("picture"), False, "[image/png]"),
        (call("write", length=5000), False, "x\n... (4800 more characters are not shown)"),
        (call("rows", text=""), False, f"{ROWS}"),
        (call("rows", text="1 row"), False, f"1 row\n{ROWS}"),
        (call("rows", text="M\u00fcller: 2, True"), False, "M\u00fcller: 2, True"),
        (call("variable", key="NOTES_KEY"), False, "k1"),  # passed on
        (call("variable", key="OTHER_KEY"), False, "unset"),
    )
    tools = ("add", "fail", "picture", "write", "rows", "variable")
    cfg = settings(folder, pass_env=("NOTES_KEY",), tools=tools, max_result=200, max_turns=20)
    [played] = play(cfg, (*(turn for turn, _, _ in expected), "2"))
    assert played.reward == 1.0 and [t["function"]["name"] for t in played.tools] == list(tools)
    assert played.num_invalid == 2  # an argument that does not fit, and no such tool
    for step, (_, is_error, text) in zip(played.steps, expected, strict=False):
        assert step.is_error is is_error and text in str(step.result)
    assert played.steps[7].result == "M\u00fcller: 2, True"  # it says all that is structured


FAILURES = [
    (call("die"), "ended while 'die' was called"),
    (call("hang"), "did not answer the call of 'hang' within 4 s (env.args.call_timeout)"),
    (call("change"), "changed its tools in the middle of the episode; new: another"),
]


def test_a_server_that_fails_ends_its_own_episode_alone(folder: Path) -> None:
    cfg = settings(folder, call_timeout=4.0)
    *failed, good = play(cfg, *((turn, "2") for turn, _ in FAILURES), ("2",))
    for trajectory, (_, message) in zip(failed, FAILURES, strict=True):
        assert trajectory.reward is None and message in str(trajectory.error)
        assert "a word on stderr" in str(trajectory.error)
    assert (good.reward, good.error) == (1.0, None)
    assert len(started(folder)) == 5 and alive(folder) == []  # the child of one that hung too


@pytest.mark.slow
def test_ten_megabytes_are_a_failure_of_the_server(folder: Path) -> None:
    [huge] = play(settings(folder), (call("write", length=10_000_000), "2"))
    assert huge.reward is None
    assert "answered the call of 'write' with 10000000 characters" in str(huge.error)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("crashes", "no database"),
        (
            "hangs",
            r"did not answer within 4 s \(env.args.start_timeout\); it printed:\na word on",
        ),
    ],
)
def test_a_server_that_does_not_start(folder: Path, how: str, message: str) -> None:
    cfg = settings(folder, how, start_timeout=300.0 if how == "crashes" else 4.0)
    with pytest.raises(UsageError, match=message):
        asyncio.run(check_env(McpTools, cfg))
    assert alive(folder) == []


def test_mistakes_in_the_settings_are_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    for args, message in (
        ({"command": "no-such-program --x"}, "there is no program 'no-such-program'"),
        ({"command": "a 'b"}, "is no line of words"),
        ({"pass_env": ("NOT_SET",)}, "NOT_SET is not set"),
        ({"tools": ("cout",)}, r"has no tool 'cout'; .* Did you mean 'count'\?"),
        ({"command": None, "url": "http://127.0.0.1:9/mcp"}, "127.0.0.1:9/mcp cannot be used"),
    ):
        with pytest.raises(UsageError, match=message):
            asyncio.run(check_env(McpTools, settings(folder, **args)))
    for given, message in (
        ([], "give one of command"),
        (["command=x", "url=http://x"], "give one of command"),
        (["command=x", "headers={A: b}"], "headers has no effect"),
        (["url=http://x", "pass_env=[A]"], "pass_env has no effect"),
    ):
        least = ["data=x.jsonl", "input=q", "target=a", "grade=exact"]
        with pytest.raises(ConfigError, match=message):
            use = "art_envs.mcp_tools.env:McpTools"
            load_env(use, [*least, *given], lambda use: env_class(use).Config)


def test_a_shared_server_serves_all_and_is_replaced_when_it_dies(folder: Path) -> None:
    cfg = settings(folder, shared=True)
    scenario = next(iter(McpTools.scenarios(cfg, "train")))

    async def go() -> list[Trajectory]:
        adds = [rollout(McpTools, cfg, scenario, Says(call("add", note="a"))) for _ in range(2)]
        first = await asyncio.gather(*adds)
        dead = await rollout(McpTools, cfg, scenario, Says(call("die")))
        return [*first, dead, await rollout(McpTools, cfg, scenario, Says(call("count")))]

    one, other, dead, after = asyncio.run(go())
    assert {results(one)[0], results(other)[0]} == {"1 notes", "2 notes"}
    assert "ended while 'die' was called" in str(dead.error)
    assert (results(after)[0], after.reward) == ("0", 1.0)
    assert len(started(folder)) == 2 and alive(folder) == []


def test_a_server_that_runs_already(folder: Path) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    words = [sys.executable, str(folder / "server.py"), str(folder), "http", port]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + 300
            while not listens(int(port)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            cfg = settings(folder, command=None, url=f"http://127.0.0.1:{port}/mcp")
            one, other = play(cfg, (call("add", note="a"), "2"), (call("fail"), "3"))
        finally:
            process.kill()
    assert (one.error, results(one)[0], one.reward) == (None, "1 notes", 1.0)
    assert other.steps[0].is_error and other.reward == 0.0


@pytest.mark.slow
def test_a_server_ends_when_its_run_is_killed(folder: Path) -> None:
    program = folder / "run.py"
    program.write_text(
        "import asyncio, sys\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from envs.test_mcp_tools import McpTools, Says, call, rollout, settings\n"
        "cfg = settings(Path(sys.argv[1]), call_timeout=60)\n"
        "scenario = next(iter(McpTools.scenarios(cfg, 'train')))\n"
        "asyncio.run(rollout(McpTools, cfg, scenario, Says(call('hang'))))\n"
    )
    words = [sys.executable, str(program), str(folder), str(Path(__file__).parents[1])]
    with subprocess.Popen(
        words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as run:
        deadline = time.monotonic() + 300
        while len(started(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        run.kill()
    assert len(started(folder)) == 2 and alive(folder) == []
