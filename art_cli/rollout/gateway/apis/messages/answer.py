"""Conversion of a turn to a message of Anthropic's API, whole or as the events of a stream."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from typing import Any

from art_cli.rollout.gateway.apis.openai_parts import pieces
from art_cli.rollout.gateway.asked import Answered


def event(kind: str, said: dict[str, Any]) -> str:
    """Return one event of a stream."""
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **said})}\n\n"


def message_of(answer: Answered, model: str, *, thinking: bool) -> dict[str, Any]:
    """Convert a turn to a message, with or without its thinking."""
    content: list[dict[str, Any]] = []
    if answer.thought and thinking:
        signature = hashlib.sha256(answer.thought.encode()).hexdigest()
        block = {"type": "thinking", "thinking": answer.thought, "signature": signature}
        content.append(block)
    if answer.words.strip():
        content.append({"type": "text", "text": answer.words, "citations": None})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    return {
        "id": f"msg_{secrets.token_hex(12)}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": _stop_reason(answer),
        "stop_sequence": None if answer.calls else answer.stop,
        "usage": {
            "input_tokens": answer.num_prompt,
            "output_tokens": answer.num_sampled,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def events_of(message: dict[str, Any]) -> Iterator[str]:
    """Yield the events of a stream that together make up a whole message."""
    usage = message["usage"]
    begun = message | {"content": [], "stop_reason": None, "stop_sequence": None}
    yield event("message_start", {"message": begun | {"usage": usage | {"output_tokens": 0}}})
    for index, block in enumerate(message["content"]):
        empty, deltas = _block(block)
        yield event("content_block_start", {"index": index, "content_block": empty})
        for delta in deltas:
            yield event("content_block_delta", {"index": index, "delta": delta})
        yield event("content_block_stop", {"index": index})
    delta = {key: message[key] for key in ("stop_reason", "stop_sequence")}
    yield event("message_delta", {"delta": delta, "usage": usage})
    yield event("message_stop", {})


def _block(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block without content, and the deltas that fill it."""
    if block["type"] == "text":
        parts = pieces(block["text"])
        return block | {"text": ""}, [{"type": "text_delta", "text": part} for part in parts]
    if block["type"] == "thinking":
        parts = pieces(block["thinking"])
        deltas = [{"type": "thinking_delta", "thinking": part} for part in parts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return block | {"thinking": "", "signature": ""}, deltas
    parts = pieces(json.dumps(block["input"]))
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block | {"input": {}}, deltas


def _stop_reason(answer: Answered) -> str:
    if answer.calls:
        return "tool_use"
    if answer.ended == "length":
        return "max_tokens"
    return "end_turn" if answer.stop is None else "stop_sequence"
