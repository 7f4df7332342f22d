"""Conversion of a request's items to messages in OpenAI's chat form.

[{"type": "message", "role": "user", "content": "hi"},
 {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
 {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
 {"type": "function_call_output", "call_id": "1", "output": "3"}]
  -> a user message, an assistant message with thinking and a call, and a tool message
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from art_cli.rollout.gateway.apis.responses.tools import HOSTED, call_of, result_of
from art_cli.rollout.gateway.asked import RequestError

SEALED = "art:"  # prefix of `encrypted_content` that seal() wrote
COMPACTED = (
    "only OpenAI can compact; let the agent ask for a text summary, as Codex does with a "
    "model_provider of its own"
)
# added_tools() reads `additional_tools`; an update changes the effort, which has no effect.
NOT_SAID = ("additional_tools", "configuration_update")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def seal(thought: str) -> str:
    """Encode thinking as `encrypted_content`, which clients that store nothing send back."""
    return SEALED + base64.b64encode(thought.encode()).decode()


def chat_messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert items to messages, one for each assistant turn. Raises RequestError."""
    out: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        add_item(out, number, item)
    return out


def add_item(out: list[dict[str, Any]], number: int, item: dict[str, Any]) -> None:
    """Convert item `number` of a request and add it to the messages. Raises RequestError."""
    try:
        _add(out, item)
    except RequestError as e:
        raise RequestError(e.status, f"input.{number}: {e}", e.code) from None


def _add(out: list[dict[str, Any]], item: dict[str, Any]) -> None:
    kind = item.get("type") or "message"
    if kind == "message" and item.get("role") == "assistant":
        _turn(out, begins=("content", "tool_calls"))["content"] = text_of(item.get("content"))
    elif kind == "message":
        content = item.get("content")
        out.append({"role": item.get("role"), "content": text_of(content)})
    elif kind == "reasoning":
        turn = _turn(out, begins=("content", "tool_calls", "reasoning_content"))
        turn["reasoning_content"] = _thought(item)
    elif called := call_of(item):
        function = {"name": called[0], "arguments": called[1]}
        call = {"id": item.get("call_id"), "function": function}
        _turn(out, begins=()).setdefault("tool_calls", []).append(call)
    elif result := result_of(item, text_of):
        out.append(result)
    elif str(kind).startswith("compaction"):
        raise RequestError(400, f"an item of type {kind!r:.100} cannot be used: {COMPACTED}")
    elif kind not in NOT_SAID:
        raise RequestError(400, f"an item of type {kind!r:.100} cannot be used: {HOSTED}")


def _turn(out: list[dict[str, Any]], begins: tuple[str, ...]) -> dict[str, Any]:
    """Return the last assistant message, or a new one if that has a key in `begins`."""
    if not out or out[-1]["role"] != "assistant" or any(key in out[-1] for key in begins):
        out.append({"role": "assistant"})
    return out[-1]


def _thought(item: dict[str, Any]) -> str:
    """Return the thinking in an item: its text, else its sealed text, else its summary."""
    sealed = item.get("encrypted_content")
    if not item.get("content") and isinstance(sealed, str) and sealed.startswith(SEALED):
        try:
            return base64.b64decode(sealed.removeprefix(SEALED), validate=True).decode()
        except (binascii.Error, ValueError):
            raise RequestError(400, "encrypted_content is not what was given here") from None
    parts = item.get("content") or item.get("summary") or []
    if not isinstance(parts, list):
        raise RequestError(400, "expected a list of texts as summary")
    return "\n\n".join(text_of([part]) for part in parts)


def text_of(content: Any) -> Any:
    """Join the text of a list of parts. Other values are returned as is. Raises RequestError."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if kind else None
        if kind not in (*TEXTS, "refusal"):
            raise RequestError(400, f"a part of type {kind!r:.100} cannot be read: send text")
        if not isinstance(text, str):
            raise RequestError(400, f"expected text, got {text!r:.200}")
        texts.append(text)
    return "".join(texts)
