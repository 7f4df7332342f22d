"""Conversations to warm up on: the env's own, or a JSONL file of chat messages."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

from art_cli.env import Env
from art_cli.errors import UsageError, blame
from art_cli.tools import tools_of
from art_cli.types import Message

ROLES = ("system", "user", "assistant", "tool")


def load_demonstrations(
    source: str, env_class: type[Env], settings: Any, num: int
) -> list[list[Message]]:
    """At most `num` conversations from `warmup.demonstrations`.

    Raises UsageError where there is none, or with file:line where one is malformed.
    """
    if source == "env":
        try:
            found = list(islice(env_class.demonstrations(settings, num), num))
        except Exception as e:
            place = blame(e, env_class)
            raise UsageError(f"{env_class.__name__}.demonstrations() failed: {place}") from e
        if not found:
            raise UsageError(
                f"{env_class.__name__} has no demonstrations; override demonstrations(), or give "
                "a JSONL file in warmup.demonstrations"
            )
        return found
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"warmup.demonstrations: there is no file {path.absolute()}")
    try:
        # Not splitlines: it also splits at characters that JSON allows within a line.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"warmup.demonstrations: cannot read {path}: {e}") from None
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
    found = [_conversation(line, f"{path}:{n}") for n, line in islice(numbered, num)]
    if not found:
        raise UsageError(f"warmup.demonstrations: {path} holds no conversation")
    return found


def texts_of(demonstrations: list[list[Message]], env_class: type[Env]) -> list[str]:
    """What a tokenizer for the env should know: what is said in it, and its tools."""
    said = [f"{m['role']}\n{m['content']}" for d in demonstrations for m in d]
    tools = [
        f"{t.name} {' '.join(t.arguments.model_fields)}: {t.description}"
        for t in tools_of(env_class).values()
    ]
    return said + tools


def _conversation(line: str, place: str) -> list[Message]:
    try:
        value = json.loads(line)
    except ValueError as e:
        raise UsageError(f"{place}: not valid JSON ({e})") from None
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages:
        raise UsageError(f'{place}: expected {{"messages": [...]}} with at least one message')
    parsed = [_message(m, place) for m in messages]
    if not any(m["role"] == "assistant" for m in parsed):
        raise UsageError(f"{place}: has no assistant message, so there is nothing to learn from")
    return parsed


def _message(message: Any, place: str) -> Message:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in ROLES:
        raise UsageError(f"{place}: expected a message with a role among {ROLES}, got {message!r}")
    content = message.get("content") or ""
    if not isinstance(content, str):
        raise UsageError(f"{place}: expected text as content, got {content!r}")
    return {"role": role, "content": content + _tool_calls(message.get("tool_calls"), place)}


def _tool_calls(calls: Any, place: str) -> str:
    """OpenAI-style tool calls as the text that the policy is to write."""
    out = []
    for call in calls if isinstance(calls, list) else [calls] if calls else []:
        try:
            function = call.get("function", call)
            arguments = function.get("arguments", {})
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
            text = json.dumps({"name": function["name"], "arguments": arguments})
        except (ValueError, KeyError, AttributeError):
            raise UsageError(
                f"{place}: expected a tool call with a name and JSON arguments, got {call!r}"
            ) from None
        out.append(f"<tool_call>{text}</tool_call>")
    return "\n".join(out)
