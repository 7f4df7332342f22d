"""Conversion of a turn to a response and its output items."""

from __future__ import annotations

import secrets
import time
from typing import Any

from art_cli.rollout.gateway.apis.openai_parts import token_logprobs
from art_cli.rollout.gateway.apis.responses.items import seal
from art_cli.rollout.gateway.apis.responses.tools import ClientTool, RequestTool
from art_cli.rollout.gateway.asked import Answered, Asked

ECHOED = (  # keys of a request that the response repeats
    *("instructions", "max_output_tokens", "metadata", "model", "previous_response_id"),
    *("reasoning", "temperature", "top_logprobs", "top_p"),
)


def head(request: dict[str, Any]) -> dict[str, Any]:
    """Return a response without its answer."""
    return {
        "id": _id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "parallel_tool_calls": request["parallel_tool_calls"] is not False,
        "store": request["store"] is not False,
        "text": {"format": _format(request["text"])},
        "tool_choice": request["tool_choice"] or "auto",
        "tools": [_echoed(tool) for tool in request["tools"] or []],
        "truncation": request["truncation"] or "disabled",
        "usage": None,
        **{key: request[key] for key in ECHOED},
    }


def finished(
    head: dict[str, Any], output: list[dict[str, Any]], answer: Answered
) -> dict[str, Any]:
    """Return a response completed with its output items and usage."""
    cut = answer.ended == "length"
    sampled = answer.num_sampled
    usage = {
        "input_tokens": answer.num_prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": answer.num_thought},
        "total_tokens": answer.num_prompt + sampled,
    }
    return {
        **head,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": usage,
    }


def output_of(
    answer: Answered, asked: Asked, tools: dict[str, ClientTool], *, sealed: bool, summed_up: bool
) -> list[dict[str, Any]]:
    """Convert a turn to items: its thinking, its text, and each call.

    With `sealed`, thinking is also encoded so that a client that hides its text can send it back.
    With `summed_up`, the whole thinking is its own summary.
    """
    out: list[dict[str, Any]] = []
    if answer.thought:
        text = answer.thought
        out.append(
            {
                "id": _id("rs"),
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if summed_up else [],
                "content": [{"type": "reasoning_text", "text": text}],
                "encrypted_content": seal(text) if sealed else None,
            }
        )
    if answer.words.strip() or not answer.calls:
        part = {
            "type": "output_text",
            "text": answer.words,
            "annotations": [],
            "logprobs": token_logprobs(answer) if asked.logprobs else [],
        }
        status = "incomplete" if answer.ended == "length" else "completed"
        message = {"id": _id("msg"), "type": "message", "role": "assistant", "status": status}
        out.append({**message, "content": [part]})
    for call in answer.calls:  # also calls of tools that do not exist
        unknown = ClientTool(RequestTool(type="function", name=call.name))
        out.append(tools.get(call.name, unknown).item(call))
    return out


def _echoed(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the form in which a response repeats it."""
    if tool["type"] != "function":
        return {key: value for key, value in tool.items() if value is not None}
    kept = {key: tool[key] for key in ("type", "name", "description")}
    return {**kept, "parameters": tool["parameters"] or {}, "strict": bool(tool["strict"])}


def _format(text: dict[str, Any] | None) -> dict[str, Any]:
    wanted = (text or {}).get("format") or {"type": "text"}
    if wanted["type"] != "json_schema":
        return {"type": wanted["type"]}
    return {"type": "json_schema", "name": "answer", "schema": wanted.get("schema") or {}}


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(16)}"
