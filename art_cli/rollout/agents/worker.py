"""Plays episodes with an async function in a separate Python environment, which need not have art.

python -u -c WORKER.PY path/to/agent.py:play       (or package.module:play)

Standard library only. The protocol is that of persistent.py.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
import urllib.request
from typing import IO, Any


class WorkerTask:
    """The episode in the form that a function receives: `Task`, plus the gateway's addresses."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.messages = told["messages"]
        self.tools = told["tools"]
        self.base_url = told["base_url"]
        self.api_key = told["api_key"]
        self.mcp_url = told["mcp_url"]
        self.workdir = told["workdir"]  # the working directory of the function
        self.is_over = False

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        """Return the result of a tool call. A refusal is a text that begins with `error: `."""
        return await asyncio.to_thread(self._call, name, arguments)

    async def reply(self, text: str) -> str:
        """Send a text to the env, which speaks for the user. Return its answer."""
        return await self.call_tool("reply", {"text": text})

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}"}
        request = urllib.request.Request(self.mcp_url, json.dumps(body).encode(), headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request) as answer:
            told = json.load(answer)
        if "error" in told:
            raise RuntimeError(told["error"]["message"])
        self.is_over = bool(told["result"].get("_meta", {}).get("art/over"))
        return told["result"]["content"][0]["text"]


def find(use: str) -> Any:
    """Import the function that `agent.function` names."""
    where, _, name = use.rpartition(":")
    # Never "", which would be the episode's folder with files that the policy wrote.
    own = os.path.dirname(os.path.abspath(where)) if where.endswith(".py") else os.getcwd()
    sys.path[:] = [own, *filter(None, sys.path)]
    if where.endswith(".py"):
        spec = importlib.util.spec_from_file_location("art_agent", where)
        assert spec and spec.loader
        module = sys.modules["art_agent"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    function = getattr(module, name)
    if not inspect.iscoroutinefunction(function):
        sys.exit(f"agent.function: {use!r} is not an async function")
    return function


async def play(function: Any, told: dict[str, Any]) -> dict[str, Any]:
    """Play one episode and return its end."""
    client, home = None, os.getcwd()
    try:
        try:
            from openai import AsyncOpenAI

            client = AsyncOpenAI(base_url=told["base_url"], api_key=told["api_key"], max_retries=0)
        except ImportError:  # then the function uses its own client
            pass
        os.chdir(told["workdir"])
        said = await function(client, WorkerTask(told))
    except Exception as e:
        traceback.print_exc()
        at = traceback.extract_tb(e.__traceback__)[-1]
        return {"error": f"{at.filename}:{at.lineno}: {type(e).__name__}: {e}"}
    finally:
        os.chdir(home)  # the episode's folder will be removed
        if client is not None:
            await client.close()
    if said is None or isinstance(said, str):
        return {"answer": said}
    if isinstance(said, dict):
        return said
    return {"error": f"returned {said!r:.200}; expected text, None, or an end of the episode"}


async def main(use: str, out: IO[str]) -> None:
    """Play episodes until stdin closes."""

    def tell(word: str, **more: Any) -> None:
        out.write(json.dumps({"art": word, **more}) + "\n")
        out.flush()

    function = find(use)
    tell("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        told = json.loads(line)
        tell("end", **{**await play(function, told), "id": told["id"]})


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keep the function's output out of the protocol
    asyncio.run(main(sys.argv[1], own))
