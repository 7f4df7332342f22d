"""Conversion of Anthropic's messages to OpenAI's chat form.

[{"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "3"}]}]
  -> an assistant message with a call, and a tool message
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from art_cli.rollout.gateway.asked import RequestError

ROLES = ("user", "assistant", "system")
HOSTED = "only Anthropic can run it; give the agent a tool of its own that does the same"


def add_message(
    definitions: Mapping[str, str],
    out: list[dict[str, Any]],
    number: int,
    message: dict[str, Any],
) -> None:
    """Convert message `number` of a request and add it to `out`.

    A reference to a tool is replaced with its text in `definitions`, which maps names of tools to
    JSON. Raises RequestError.
    """
    role = message.get("role")
    where = f"messages.{number}"
    if role not in ROLES:
        raise RequestError(400, f"{where}.role: expected one of {ROLES}, got {role!r:.100}")
    if role == "assistant":
        _add_turn(out, message.get("content"), where)
    else:
        _add_said(definitions, out, str(role), message.get("content"), where)


def text_of(content: Any, where: str) -> str:
    """Return the text of blocks. Raises RequestError."""
    return "\n\n".join(
        _text(block, f"{where}.{number}") for number, block in enumerate(_blocks(content, where))
    )


def _blocks(content: Any, where: str) -> list[dict[str, Any]]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(b, dict) for b in blocks):
        raise RequestError(400, f"{where}: expected text or a list of blocks, got {content!r:.200}")
    return blocks


def _text(block: dict[str, Any], where: str) -> str:
    kind = block.get("type")
    if kind in ("image", "document"):
        raise RequestError(400, f"{where}: the policy reads text only: send the {kind} as text")
    if kind != "text":
        raise RequestError(400, f"{where}: a block of type {kind!r:.100} cannot be used: {HOSTED}")
    return _string(block.get("text"), where)


def _string(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise RequestError(400, f"{where}: expected text, got {text!r:.200}")
    return text


def _result_text(definitions: Mapping[str, str], content: Any, where: str) -> str:
    """Return the text of a tool result, including the definitions of tools that it refers to."""
    texts = []
    for number, block in enumerate(_blocks(content, where)):
        here = f"{where}.{number}"
        if block.get("type") == "tool_reference":
            name = str(block.get("tool_name"))
            if name not in definitions:
                raise RequestError(400, f"{here}: {name!r:.200} is not among the tools")
            texts.append(definitions[name])
        else:
            texts.append(_text(block, here))
    return "\n\n".join(texts)


def _add_said(
    definitions: Mapping[str, str],
    out: list[dict[str, Any]],
    role: str,
    content: Any,
    where: str,
) -> None:
    """Add the tool results of a message, then the other text in it."""
    texts: list[str] = []
    results: list[dict[str, Any]] = []
    for number, block in enumerate(_blocks(content, where)):
        here = f"{where}.content.{number}"
        if block.get("type") == "tool_result" and role == "user":
            text = _result_text(definitions, block.get("content") or "", here)
            result = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}
            results.append({**result, "is_error": block.get("is_error") is True})
        else:
            texts.append(_text(block, here))
    out += results
    if texts or not results:
        out.append({"role": role, "content": "\n\n".join(texts)})


def _add_turn(out: list[dict[str, Any]], content: Any, where: str) -> None:
    """Add an assistant turn. It is merged into a preceding assistant message without calls."""
    words, thoughts, calls = "", [], []
    for number, block in enumerate(_blocks(content, where)):
        here = f"{where}.content.{number}"
        match block.get("type"):
            case "thinking":
                thoughts.append(_string(block.get("thinking"), here))
            case "redacted_thinking":
                pass
            case "tool_use":
                function = {"name": block.get("name"), "arguments": block.get("input")}
                calls.append({"id": block.get("id"), "function": function})
            case _:
                words += _text(block, here)
    last: dict[str, Any] = out[-1] if out else {}
    if last.get("role") != "assistant" or last.get("tool_calls"):
        last = {"role": "assistant", "content": ""}
        out.append(last)
    last["content"] += words
    if any(thoughts):
        last["reasoning_content"] = "\n\n".join(filter(None, thoughts))
    if calls:
        last["tool_calls"] = calls
