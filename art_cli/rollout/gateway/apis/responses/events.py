"""Conversion of a whole response to the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from art_cli.rollout.gateway.apis.openai_parts import pieces

Event = tuple[str, dict[str, Any]]  # its type and its data


def event(number: int, kind: str, said: dict[str, Any]) -> str:
    """Return one event. `number` is its index in the stream."""
    value = {"type": kind, "sequence_number": number, **said}
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


def events_of(head: dict[str, Any], body: dict[str, Any]) -> Iterator[str]:
    """Yield the events of a response: its start, each item in pieces, and its end."""
    for number, (kind, said) in enumerate(_all(head, body)):
        yield event(number, kind, said)


def _all(head: dict[str, Any], body: dict[str, Any]) -> Iterator[Event]:
    yield "response.created", {"response": head}
    yield "response.in_progress", {"response": head}
    for index, item in enumerate(body["output"]):
        here = {"output_index": index}
        yield "response.output_item.added", {"item": _empty(item), **here}
        if write := _WRITERS.get(item["type"]):  # other types are sent whole
            yield from write(item, {"item_id": item["id"], **here})
        yield "response.output_item.done", {"item": item, **here}
    yield f"response.{body['status']}", {"response": body}


def _empty(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without its content, for the event that announces it."""
    if item["type"] == "reasoning":
        return item | {"summary": [], "content": [], "encrypted_content": None}
    empty = _EMPTY.get(item["type"], {})
    return item | empty | ({"status": "in_progress"} if "status" in item else {})


def _message(item: dict[str, Any], here: dict[str, Any]) -> Iterator[Event]:
    for index, part in enumerate(item["content"]):
        at = {**here, "content_index": index}
        empty = part | {"text": "", "logprobs": []}
        yield "response.content_part.added", {**at, "part": empty}
        # Tokens cannot be assigned to pieces, so all log-probabilities come with the `done` event.
        for piece in pieces(part["text"]):
            yield "response.output_text.delta", {**at, "delta": piece, "logprobs": []}
        done = {"text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", {**at, **done}
        yield "response.content_part.done", {**at, "part": part}


def _reasoning(item: dict[str, Any], here: dict[str, Any]) -> Iterator[Event]:
    for index, part in enumerate(item["summary"]):
        at = {**here, "summary_index": index}
        yield "response.reasoning_summary_part.added", {**at, "part": part | {"text": ""}}
        for piece in pieces(part["text"]):
            yield "response.reasoning_summary_text.delta", {**at, "delta": piece}
        yield "response.reasoning_summary_text.done", {**at, "text": part["text"]}
        yield "response.reasoning_summary_part.done", {**at, "part": part}
    for index, part in enumerate(item["content"]):
        at = {**here, "content_index": index}
        yield "response.content_part.added", {**at, "part": part | {"text": ""}}
        for piece in pieces(part["text"]):
            yield "response.reasoning_text.delta", {**at, "delta": piece}
        yield "response.reasoning_text.done", {**at, "text": part["text"]}
        yield "response.content_part.done", {**at, "part": part}


def _function_call(item: dict[str, Any], here: dict[str, Any]) -> Iterator[Event]:
    for piece in pieces(item["arguments"]):
        yield "response.function_call_arguments.delta", {**here, "delta": piece}
    done = {"arguments": item["arguments"], "name": item["name"]}
    yield "response.function_call_arguments.done", {**here, **done}


def _custom_tool_call(item: dict[str, Any], here: dict[str, Any]) -> Iterator[Event]:
    for piece in pieces(item["input"]):
        yield "response.custom_tool_call_input.delta", {**here, "delta": piece}
    yield "response.custom_tool_call_input.done", {**here, "input": item["input"]}


_EMPTY = {"message": {"content": []}, "function_call": {"arguments": ""}}
_EMPTY |= {"custom_tool_call": {"input": ""}}
_WRITERS = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
}
