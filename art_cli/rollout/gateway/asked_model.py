"""Requests that another model answers instead of the policy: conversion, call and answer.

The model may be one of `agent.models`, or a candidate of `art eval`. The episode records its turns
like those of the policy, but does not train on them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from art_cli.chat.turns import call_text, parse_tool_calls, read_turn
from art_cli.llms.base import AskedLLM, ChatMessage, NativeCall
from art_cli.rollout.gateway.asked import Answered, AnsweredCall, Asked, RequestError
from art_cli.system.untrusted import read_json
from art_cli.types import Completion, Message, Sequence


@dataclass(slots=True)
class Spoken:
    """A conversation with such a model, which has text but no token ids."""

    messages: list[Message] = field(default_factory=list)
    sequences: list[Sequence] = field(default_factory=list)  # always empty
    ids: list[int] = field(default_factory=list)


async def ask_model(llm: AskedLLM, asked: Asked) -> tuple[Answered, float]:
    """Return a model's answer to a request, and its cost in US dollars.

    Raises RequestError if the model cannot serve such a request, LLMError, or BudgetError.
    """
    if asked.raw is not None:
        raise RequestError(400, f"{llm.name} is asked by messages; use /v1/chat/completions")
    if asked.n > 1:
        raise RequestError(400, f"n: {llm.name} is asked for one answer at a time")
    messages = as_chat(asked.messages)
    if asked.prefill:
        messages.append({"role": "assistant", "content": asked.prefill})
    reply = await llm.ask(messages, asked.response_schema, asked.tools or None, _more(asked))
    calls, broken = [], ""
    for call in reply.calls:
        # Like a turn of the policy, one that was cut off makes no calls: more might have followed.
        if not reply.cut and (read := _call(call)) is not None:
            calls.append(read)
        else:  # a malformed call stays in the text, as on other servers
            broken += call_text(call.name, call.arguments)
    ended = "length" if reply.cut else "stop"
    answered = Answered(
        words=(reply.text + broken).encode(errors="replace").decode(),
        thought="",
        calls=tuple(calls),
        ended=ended,
        completion=Completion(token_ids=[], logprobs=[], finish_reason=ended, policy_version=0),
        tokens=[],
        likeliest=[],
        num_prompt=reply.num_read,
        num_written=reply.num_written,
    )
    return answered, reply.usd


def as_chat(messages: list[Message]) -> list[ChatMessage]:
    """Convert messages in our text form to an API's: separate calls, and results with call ids."""
    out: list[ChatMessage] = []
    waiting: list[str] = []  # ids of calls whose results come next, in order
    num_calls = 0
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "assistant":
            turn = read_turn(content)
            chat: ChatMessage = {"role": role, "content": turn.said}
            if calls := [c for c in parse_tool_calls(turn.said) if not isinstance(c, str)]:
                waiting = [f"call{num_calls + n + 1:05d}" for n in range(len(calls))]
                num_calls += len(calls)
                chat["content"] = turn.words.strip() or None
                chat["tool_calls"] = [
                    {
                        "id": name,
                        "type": "function",
                        "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])},
                    }
                    for name, c in zip(waiting, calls, strict=True)
                ]
            out.append(chat)
        elif role == "tool" and waiting:
            out.append({"role": role, "tool_call_id": waiting.pop(0), "content": content})
        else:
            out.append({"role": "user" if role == "tool" else role, "content": content})
    return out


def _more(asked: Asked) -> dict[str, Any]:
    """Return the options of a request for the model's API."""
    choice: Any = "required" if asked.must_call else None
    if asked.forced_tool:
        choice = {"type": "function", "function": {"name": asked.forced_tool}}
    given = {
        "max_tokens": asked.limit,
        "stop": list(asked.stops) or None,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "seed": asked.seed,
        "tool_choice": choice if asked.tools else None,
        "parallel_tool_calls": False if asked.tools and not asked.parallel else None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _call(call: NativeCall) -> AnsweredCall | None:
    try:
        arguments = read_json(call.arguments)
    except ValueError:
        return None
    if not isinstance(arguments, dict):
        return None
    return AnsweredCall(id=call.id, name=call.name, arguments=arguments)
