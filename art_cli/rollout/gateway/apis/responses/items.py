"""The items of a request as messages in OpenAI's chat form.

[{"type": "message", "role": "user", "content": "hi"},
 {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
 {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
 {"type": "function_call_output", "call_id": "1", "output": "3"}]
  -> a user's message, one of the assistant's that thinks and calls, and a tool's
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from art_cli.rollout.gateway.apis.responses.tools import HOSTED, call_of, result_of
from art_cli.rollout.gateway.asked import RequestError

SEALED = "art:"  # how the thinking of an item begins that says it in `encrypted_content` only
COMPACTED = (
    "only OpenAI compacts; let the agent ask for a summary in words, as Codex does with a "
    "model_provider of its own"
)
# Of `additional_tools`, see added_tools(); an update changes the effort, which has no effect.
NOT_SAID = ("additional_tools", "configuration_update")
TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")


def seal(thought: str) -> str:
    """Return thinking as `encrypted_content`: clients that store nothing send it back."""
    return SEALED + base64.b64encode(thought.encode()).decode()


def chat_messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items as messages; those of one turn of the assistant as one. Raises RequestError."""
    out: list[dict[str, Any]] = []
    for number, item in enumerate(items):
        add_item(out, number, item)
    return out


def add_item(out: list[dict[str, Any]], number: int, item: dict[str, Any]) -> None:
    """Add an item, which has this number, to the messages before it. Raises RequestError."""
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
    """Return the assistant's turn that an item belongs to: a new one behind what `begins` names."""
    if not out or out[-1]["role"] != "assistant" or any(key in out[-1] for key in begins):
        out.append({"role": "assistant"})
    return out[-1]


def _thought(item: dict[str, Any]) -> str:
    """Return what an item thinks: its text, else what was sealed here, else its summary."""
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
    """Return the text of parts; what is no list is for others to judge. Raises RequestError."""
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
