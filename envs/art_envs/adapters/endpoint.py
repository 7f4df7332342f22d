"""An endpoint of OpenAI's chat completions, for libraries that request their model at a URL."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import Any

MAX_REQUEST = 64 * 2**20  # bytes
Say = Callable[[Mapping[str, str], list[Any], list[Any]], Awaitable[dict[str, Any]]]


@asynccontextmanager
async def endpoint(say: Say) -> AsyncIterator[str]:
    """Serve on loopback, with a secret in the path; give the base URL.

    `say` gets a request's headers, messages (with `role`, `content` and `tool_call_id`) and tools
    (with `name`, `description` and `parameters`), and returns the assistant's message in OpenAI's
    form. Needs aiohttp.
    """
    web = import_module("aiohttp.web")

    async def chat(request: Any) -> Any:
        body = await request.json()
        messages = [SimpleNamespace(**{"content": None, **m}) for m in body["messages"]]
        if any(part.get("type") != "text" for m in messages for part in _parts(m.content)):
            return refusal("art plays text alone, and a message here has an image or a file")
        tools = [_tool(**tool["function"]) for tool in body.get("tools") or ()]
        message = await say(request.headers, messages, tools)
        if body.get("stream"):
            return web.Response(text=_events(message), content_type="text/event-stream")
        return web.json_response(_completion("chat.completion", message=message))

    async def other(request: Any) -> Any:
        path = request.match_info["path"]
        return refusal(f"art answers chat/completions alone, and this harness asks {path}")

    def refusal(why: str) -> Any:
        return web.json_response({"error": {"message": why}}, status=400)

    app, secret = web.Application(client_max_size=MAX_REQUEST), secrets.token_urlsafe(16)
    app.router.add_post(f"/{secret}/v1/chat/completions", chat)
    app.router.add_post(f"/{secret}/v1/{{path:.*}}", other)
    # A client that disconnects gets no answer, so the request of a closed episode ends at once.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/{secret}/v1"
    finally:
        await runner.cleanup()


def _events(message: dict[str, Any]) -> str:
    """Return an event stream that sends the whole message at once."""
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, "tool_calls": calls} if calls else message
    chunk = _completion("chat.completion.chunk", delta=delta)
    return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n"


def _completion(kind: str, **said: dict[str, Any]) -> dict[str, Any]:
    (message,) = said.values()
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "finish_reason": reason, **said}
    return {"id": "policy", "object": kind, "created": 0, "model": "policy", "choices": [choice]}


def _tool(name: str, description: str = "", parameters: Any = None, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, description=description, parameters=parameters or {})


def _parts(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else []
