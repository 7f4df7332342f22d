"""The env's tools over the Model Context Protocol, for one episode.

Implements the part of Streamable HTTP that a server without sessions and server messages needs
(https://modelcontextprotocol.io/specification/2025-06-18/basic/transports): each POST holds one
JSON-RPC message, and the response holds its answer.
"""

from __future__ import annotations

from typing import Any

from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.system.deadline import beside
from art_cli.system.untrusted import read_json

REPLY = {
    "name": "reply",
    "description": "Say this to whom the task is for; gives what comes back.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")  # newest first
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602


class _RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


async def answer(episode: Hosted, body: bytes) -> dict[str, Any] | None:
    """Return the answer to one JSON-RPC message; None if the message needs no answer."""
    try:
        message = await beside(len(body), read_json, body)
    except ValueError as e:
        return _failure(None, PARSE_ERROR, f"the body is not JSON that can be used: {e}")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        return _failure(None, INVALID_REQUEST, "expected one JSON-RPC 2.0 message")
    if "id" not in message or "method" not in message:  # a notification, or a stray answer
        return None
    params = message.get("params") or {}
    try:
        if not isinstance(params, dict):
            raise _RpcError(INVALID_PARAMS, "params must be an object")
        result = await _call(episode, message["method"], params)
    except _RpcError as e:
        return _failure(message["id"], e.code, str(e))
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def _call(episode: Hosted, method: Any, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "art", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        tools = [_described(t["function"]) for t in episode.tools]
        return {"tools": [*tools, REPLY] if _offers_reply(episode) else tools}
    if method == "tools/call":
        return await _call_tool(episode, params)
    raise _RpcError(NO_METHOD, f"there is no method {method!r:.200}")


async def _call_tool(episode: Hosted, params: dict[str, Any]) -> dict[str, Any]:
    name, arguments = params.get("name"), params.get("arguments") or {}
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise _RpcError(INVALID_PARAMS, "expected name and arguments")
    try:
        if name == REPLY["name"] and _offers_reply(episode):
            text, is_error = await episode.reply(str(arguments.get("text", ""))), False
        else:
            result = await episode.call_tool(name, arguments)
            text, is_error = result["content"], result.get("is_error", False)
    except RequestError as e:
        text, is_error = f"error: {e}", True
    result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    return result | {"_meta": {"art/over": True}} if episode.ended.done() else result


def _offers_reply(episode: Hosted) -> bool:
    """Return whether the tool `reply` is ours. An env's tool of that name takes precedence."""
    own = {tool["function"]["name"] for tool in episode.tools}
    return episode.has_reply and REPLY["name"] not in own


def _described(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "inputSchema": tool["parameters"],
    }


def _failure(id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}
