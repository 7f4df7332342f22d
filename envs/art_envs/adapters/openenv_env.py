"""Environments of OpenEnv: a server that is reset and stepped, here or elsewhere.

    user        {"x": 0, "y": 0, "message": "Welcome to Grid World! Goal is at [4, 4]."}
    assistant   <tool_call>{"name": "step", "arguments": {"action": "RIGHT"}}</tool_call>
    tool        {"x": 0, "y": 1, "message": "Keep going..."}

The tool `step` takes what the server says that an action is. Nothing of OpenEnv is needed here: a
session is a WebSocket.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from art_cli import Done, Env, Message, Scenario, Tool, ToolError, Trajectory, UsageError, guarded

MOST_INVALID = 3  # an episode ends after this number of invalid actions
WAITS = (0.1, 0.3, 1.0, None)  # seconds between attempts to begin a session
SHOWN = 2000  # characters of a server's output in an error message
MOST_PRINTED = 2**26  # bytes of output after which a server is killed and a new one started
MOST_TEXT = 2**22  # bytes of an observation
HIDDEN = ("done", "reward", "metadata")  # keys of an observation that the model does not see
CALL = "Call the tool step."


class OpenEnv(Env):
    """An environment of OpenEnv, by its server."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        url: str | None = None  # address of a running server, http://HOST:PORT
        # Or the command that starts a server for all episodes, with {port} and {python} (this
        # interpreter).
        command: str | None = None
        reset: dict[str, Any] = field(default_factory=dict)  # of each reset, beside the seed
        task: str = ""  # a system message that describes the task
        # Price of an invalid call and of a turn without a call. The third one ends the episode.
        invalid_price: Annotated[float, Field(ge=0)] = 0.1
        max_turns: Annotated[int, Field(ge=1)] = 30
        start_timeout: Annotated[float, Field(gt=0)] = 60.0  # seconds, until the server answers

        def __post_init__(self) -> None:
            """Raise ValueError unless exactly one of `command` and `url` is given."""
            if (self.url is None) == (self.command is None):
                raise ValueError("give one of command, which starts a server, and url, of a server")

    tool_timeout = 60.0

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.max_turns = cfg.max_turns
        self.total = 0.0
        self.invalid = 0  # invalid actions and turns without a call
        self.num_words = 0  # turns without a call
        self._session: Any = None
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> list[Message]:
        """Open a session and reset it; return the first observation."""
        import aiohttp

        url = await asyncio.to_thread(_url, self.cfg)
        self._step = await asyncio.to_thread(_action_of, url)
        self._session = aiohttp.ClientSession()
        for wait in WAITS:
            try:
                first = await self._begun(f"{url}/ws".replace("http", "ws", 1))
                break
            except UsageError:  # the previous session may not have ended yet
                if wait is None:
                    raise
                await asyncio.sleep(wait)
        system: list[Message] = [{"role": "system", "content": self.cfg.task}]
        return [*(system if self.cfg.task else ()), {"role": "user", "content": _text(first)}]

    async def _begun(self, address: str) -> dict[str, Any]:
        """Return the first observation of a session. Raise UsageError if the session cannot be
        opened.
        """
        import aiohttp

        try:
            self._socket = await self._session.ws_connect(address, max_msg_size=MOST_TEXT)
        except aiohttp.ClientError as e:
            raise UsageError(f"{address}: no session of OpenEnv: {e}") from None
        seed = self.scenario.seed % 2**31
        return await self._ask({"type": "reset", "data": {"seed": seed, **self.cfg.reset}})

    def tools(self) -> list[Tool]:
        """Return `step`, whose parameters are the server's schema of an action."""
        about = self._step.get("description") or "Act in the environment."
        schema = {key: value for key, value in self._step.items() if key != "description"}
        return [Tool(name="step", description=about, parameters=schema, writes=True)]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str | Done:
        """Take one step and return the next observation. Raise ToolError for an invalid action."""
        async with self._one_at_a_time:
            if self.invalid >= MOST_INVALID:
                return Done()
            told = await self._ask({"type": "step", "data": arguments})
        self.total += float(told.get("reward") or 0)
        return Done() if told.get("done") else _text(told)

    async def reply(self, text: str) -> str | Done:
        """Ask for a call: plain text is not an action."""
        self.invalid += 1
        self.num_words += 1
        return Done() if self.invalid >= MOST_INVALID else CALL

    async def score(self, trajectory: Trajectory) -> float:
        """Return the sum of the rewards minus the price of invalid actions.

        Unparsable calls count too, otherwise a policy would learn to write only those.
        """
        invalid = trajectory.num_tool_errors + self.num_words
        self.metrics = {"return": self.total, "invalid_actions": float(invalid)}
        return self.total - self.cfg.invalid_price * invalid

    async def close(self) -> None:
        """End the session."""
        if self._session:
            with suppress(Exception):
                await self._socket.send_str(json.dumps({"type": "close"}))
                await self._socket.close()
            await self._session.close()

    async def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the server's answer. Raise ToolError, UsageError or RuntimeError."""
        await self._socket.send_str(json.dumps(message))
        answer = await self._socket.receive()
        try:
            told = json.loads(answer.data)
        except (TypeError, ValueError):
            raise RuntimeError(f"the server ended the session: {answer.data!r:.200}") from None
        if told.get("type") != "error":
            return told["data"]
        code, said = told["data"].get("code"), str(told["data"].get("message"))
        # Many environments reject an invalid action by raising an error, so both cases cost the
        # same.
        if code in ("VALIDATION_ERROR", "EXECUTION_ERROR") and message["type"] == "step":
            self.invalid += 1
            raise ToolError(_mistakes(told["data"]) or said)
        if code == "CAPACITY_REACHED":
            raise UsageError(
                f"the server of OpenEnv has no room for another episode ({said}): set "
                "env.concurrency to what it takes, or raise its max_concurrent_envs"
            )
        raise RuntimeError(f"the server says {code}: {said}")


def _text(told: dict[str, Any]) -> str:
    seen = told.get("observation") or {}
    return json.dumps({name: value for name, value in seen.items() if name not in HIDDEN})


def _mistakes(told: dict[str, Any]) -> str:
    """Return the validation errors of an action, field by field, if the server lists them."""
    found = [each for each in told.get("errors") or () if isinstance(each, dict)]
    places = [".".join(map(str, each.get("loc", ()))) for each in found]
    return "; ".join(f"{at}: {e.get('msg')}" for at, e in zip(places, found, strict=True))


@lru_cache(maxsize=64)
def _action_of(url: str) -> dict[str, Any]:
    """Return the JSON schema of an action, as a tool's parameters."""
    with urllib.request.urlopen(f"{url}/schema", timeout=30) as answer:
        schema = json.load(answer)["action"]
    schema.pop("title", None)
    schema.get("properties", {}).pop("metadata", None)
    schema.setdefault("properties", {})
    return schema


_servers: dict[str, tuple[subprocess.Popen[bytes], Any, str]] = {}
_starting = threading.Lock()


def _url(cfg: OpenEnv.Config) -> str:
    """Return the server's address, after starting the server if it is not running."""
    if cfg.command is None:
        return (cfg.url or "").rstrip("/")
    with _starting:
        if cfg.command not in _servers or _servers[cfg.command][0].poll() is not None:
            if gone := _servers.pop(cfg.command, None):
                _end(gone[0], gone[1])
            _servers[cfg.command] = _started(cfg.command, cfg.start_timeout)
        return _servers[cfg.command][2]


@atexit.register
def close_servers() -> None:
    """Stop the servers that this process started."""
    for process, printed, _ in _servers.values():
        _end(process, printed)
    _servers.clear()


def _end(process: subprocess.Popen[bytes], printed: Any) -> None:
    assert process.stdin
    process.stdin.close()  # closing stdin makes the guard process kill the server
    process.wait()
    printed.close()


def _started(command: str, seconds: float) -> tuple[subprocess.Popen[bytes], Any, str]:
    """Return the server's process, its output file and its address. Raise UsageError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    filled = command.replace("{port}", port).replace("{python}", shlex.quote(sys.executable))
    words = shlex.split(filled)
    if shutil.which(words[0]) is None:
        raise UsageError(f"env.args.command: there is no program {words[0]!r}")
    printed = tempfile.TemporaryFile()  # noqa: SIM115 (kept open)
    process = subprocess.Popen(
        guarded(words, limit=MOST_PRINTED),
        stdin=subprocess.PIPE,  # when this closes, or this process ends, the guard ends the server
        stdout=printed,
        stderr=printed,
        start_new_session=True,
    )
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return process, printed, url
        time.sleep(0.1)
    ended = process.poll() is not None
    printed.seek(0)
    said = printed.read().decode(errors="replace").strip()[-SHOWN:] or "(nothing)"
    _end(process, printed)
    what = "ended" if ended else f"did not answer within {seconds:g} s"
    raise UsageError(f"env.args.command: {command!r} {what}; it printed:\n{said}")
