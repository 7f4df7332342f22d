"""A trajectory's conversation as a sequence of events: policy turns and tool calls.

Messages are written as OpenTelemetry's JSON schemas for generative AI have them:
{"role": "assistant", "parts": [{"type": "text", "content": ...}, {"type": "tool_call", ...}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from art_cli.runs.trackers.shorten import LONGEST, shortened

Part = dict[str, Any]
LONGEST_HISTORY = 10 * LONGEST  # characters of a turn's input messages


@dataclass(slots=True, kw_only=True)
class ChatTurn:
    """A request to the policy, and its answer."""

    read: list[Part]
    said: Part
    policy_version: int | None = None
    tokens: tuple[int, int] | None = None  # read and sampled; None: unknown for this turn


@dataclass(slots=True, kw_only=True)
class Called:
    """A tool call. `result` is None if the episode ended with the call."""

    id: str
    name: str
    arguments: Any
    result: str | None = None
    is_error: bool = False


@dataclass(slots=True)
class _Heard:
    """The conversation so far, and the calls without a result."""

    messages: list[Part] = field(default_factory=list)
    open: list[Called] = field(default_factory=list)
    num_calls: int = 0


def events_of(row: dict[str, Any], max_tokens: int) -> Iterator[ChatTurn | Called]:
    """Yield the turns and calls in a row of a trajectory file, in order."""
    num_turns = sum(m["role"] == "assistant" for m in row["messages"])
    tokens = _tokens_of_turns(row["sequences"])
    known = iter(tokens if len(tokens) == num_turns else ())
    versions = iter(row["policy_versions"])
    heard, num = _Heard(), 0
    for m in row["messages"]:
        if m["role"] == "assistant":
            yield from heard.open
            num += 1
            used, read = next(known, None), _recent(heard.messages)
            heard.open = _calls(m, heard)
            said = _message(m, heard.open)
            is_last = num == num_turns
            said["finish_reason"] = _finish_reason(row, heard.open, used, is_last, max_tokens)
            yield ChatTurn(read=read, said=said, policy_version=next(versions, None), tokens=used)
        elif m["role"] == "tool":
            call = heard.open.pop(0) if heard.open else Called(id="", name="tool", arguments=None)
            call.name = m.get("name") or call.name
            call.result, call.is_error = m.get("content") or "", bool(m.get("is_error"))
            said = _message(m, [call])
            yield call
        else:
            said = _message(m, [])
        heard.messages.append({k: v for k, v in said.items() if k != "finish_reason"})
    yield from heard.open


def opening_of(row: dict[str, Any]) -> list[Part]:
    """Return the messages before the policy's first turn."""
    roles = [m["role"] for m in row["messages"]]
    end = roles.index("assistant") if "assistant" in roles else len(roles)
    return [_message(m, []) for m in row["messages"][:end]]


def _calls(message: dict[str, Any], heard: _Heard) -> list[Called]:
    begin, found = heard.num_calls, message.get("tool_calls") or []
    heard.num_calls += len(found)
    return [
        Called(id=f"call-{begin + n}", name=call.get("name") or "tool", arguments=call["arguments"])
        for n, call in enumerate(found)
    ]


def _message(message: dict[str, Any], calls: list[Called]) -> Part:
    text = shortened(message.get("content") or "")
    if message["role"] == "tool":
        [call] = calls
        parts = [{"type": "tool_call_response", "id": call.id, "response": text}]
    else:
        parts: list[Part] = [{"type": "text", "content": text}] if text else []
        for call in calls:
            what = {"id": call.id, "name": call.name, "arguments": call.arguments}
            parts.append({"type": "tool_call", **what})
    return {"role": message["role"], "parts": parts}


def _finish_reason(
    row: dict[str, Any], calls: list[Called], used: tuple[int, int] | None, is_last: bool, most: int
) -> str:
    """Return why a turn ended, as derived from the row: the engine's reason is not stored."""
    if calls:
        return "tool_call"
    cut = is_last and (used is None or row["stop_reason"] == "context")
    at_limit = used is not None and used[1] >= most
    return "length" if row["truncated"] and (cut or at_limit) else "stop"


def _recent(messages: list[Part]) -> list[Part]:
    """Return all messages, or only the latest of a very long conversation."""
    sizes = [len(json.dumps(m)) for m in messages]
    if sum(sizes) <= LONGEST_HISTORY:
        return list(messages)
    room, begin = LONGEST_HISTORY, len(messages)
    while begin > 0 and sizes[begin - 1] <= room:
        begin -= 1
        room -= sizes[begin]
    note = f"[... {begin} messages left out ...]"
    return [{"role": "system", "parts": [{"type": "text", "content": note}]}, *messages[begin:]]


def _tokens_of_turns(sequences: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Return (tokens read, tokens sampled) of each turn. A run of ones in the mask is a turn.

    Tokens that a grammar forced were sampled too, but are not in the mask.
    """
    found: list[tuple[int, int]] = []
    for sequence in sequences:
        sampled = list(sequence["mask"])
        for part in sequence.get("constrained", ()):
            sampled[part["begin"] : part["end"]] = [1] * (part["end"] - part["begin"])
        begin = None
        for at, is_sampled in enumerate([*sampled, 0]):
            if is_sampled and begin is None:
                begin = at
            elif not is_sampled and begin is not None:
                found.append((begin, at - begin))
                begin = None
    return found
