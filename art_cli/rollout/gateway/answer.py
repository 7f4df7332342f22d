"""How a turn goes back to a client that speaks OpenAI's protocol: at once, or as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from art_cli.rollout.gateway.request import ChatRequest, RequestError
from art_cli.types import Completion

HEARTBEAT = 10.0  # seconds between signs of life in a stream
PIECE = 24  # characters of a streamed piece


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a call gets."""

    message: dict[str, Any]  # OpenAI's
    finish_reason: str
    completion: Completion
    tokens: list[str]  # of the completion, as text
    num_prompt: int  # tokens


def completion(answer: ChatAnswer, asked: ChatRequest) -> dict[str, Any]:
    """Return the body of an answer, but for its head."""
    choice = {
        "index": 0,
        "message": answer.message,
        "finish_reason": answer.finish_reason,
        "logprobs": _logprobs(answer) if asked.logprobs else None,
    }
    return {"object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


async def stream(
    request: web.Request,
    asked: ChatRequest,
    head: dict[str, Any],
    sampled: Coroutine[Any, Any, ChatAnswer],
) -> web.StreamResponse:
    """Server-sent events. A turn is sampled as a whole, in a batch with those of other episodes,
    and streamed when it is there; until then there are comments, so that nobody gives up."""
    task = asyncio.ensure_future(sampled)
    try:
        await asyncio.wait({task}, timeout=HEARTBEAT)
        if task.done() and task.exception():
            await task
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        while not task.done():
            await response.write(b": still sampling\n\n")
            await asyncio.wait({task}, timeout=HEARTBEAT)
    except BaseException:
        task.cancel()
        raise
    try:
        events = [
            head | {"object": "chat.completion.chunk"} | c for c in _chunks(await task, asked)
        ]
    except RequestError as e:  # too late for a status
        events = [e.body()]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    await response.write(f"{lines}data: [DONE]\n\n".encode())
    await response.write_eof()
    return response


def _usage(answer: ChatAnswer) -> dict[str, int]:
    sampled = len(answer.completion.token_ids)
    return {
        "prompt_tokens": answer.num_prompt,
        "completion_tokens": sampled,
        "total_tokens": answer.num_prompt + sampled,
    }


def _logprobs(answer: ChatAnswer) -> dict[str, Any]:
    content = [
        {"token": t, "logprob": p, "bytes": list(t.encode()), "top_logprobs": []}
        for t, p in zip(answer.tokens, answer.completion.logprobs, strict=True)
    ]
    return {"content": content}


def _chunks(answer: ChatAnswer, asked: ChatRequest) -> Iterator[dict[str, Any]]:
    """Return a whole answer in the pieces of a stream."""

    def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": None} | more]}

    message = answer.message
    yield chunk({"role": "assistant", "content": ""})
    for key in ("reasoning_content", "content"):
        for piece in _pieces(message.get(key) or ""):
            yield chunk({key: piece})
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"] | {"arguments": ""}
        yield chunk({"tool_calls": [call | {"index": index, "function": function}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    logprobs = {"logprobs": _logprobs(answer)} if asked.logprobs else {}
    yield chunk({}, finish_reason=answer.finish_reason, **logprobs)
    if (asked.stream_options or {}).get("include_usage"):
        yield {"choices": [], "usage": _usage(answer)}


def _pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
