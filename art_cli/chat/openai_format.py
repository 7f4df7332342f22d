"""Conversion between OpenAI's chat format, used by programs and files, and our messages.

{"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
 "function": {"name": "get_order", "arguments": "{\\"order_id\\": \\"W42\\"}"}}]}
{"role": "assistant", "content": '<tool_call>{"name": "get_order", ...}</tool_call>'}
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from art_cli.chat.turns import Turn, WrittenCall
from art_cli.system.untrusted import check_text, read_json
from art_cli.types import Message, ToolCall

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEXTS = ("text", "input_text", "output_text")  # types of parts that are text
# Keys for an assistant's thinking: of DeepSeek and vLLM, of OpenRouter, of Ollama and TRL.
THOUGHTS = ("reasoning_content", "reasoning", "thinking")


class ChatFormatError(ValueError):
    """An invalid message. The text says what was expected."""


def read_messages(values: list[Any]) -> list[Message]:
    """Convert OpenAI's messages to ours: text and calls in one text, results in order of calls.

    Raises ChatFormatError.
    """
    reading = Reading()
    for value in values:
        reading.add(value)
    return reading.messages


@dataclass(slots=True)
class Reading:
    """Incremental conversion of OpenAI's messages to ours."""

    messages: list[Message] = field(default_factory=list)
    # The index and the tool of each call, by its id; the results of the last turn's calls.
    _calls: dict[str, tuple[int, str]] = field(default_factory=dict)
    _results: list[tuple[int, Message]] = field(default_factory=list)

    def copied(self) -> Reading:
        """Return a copy, to continue from here independently."""
        return Reading(list(self.messages), dict(self._calls), list(self._results))

    def add(self, value: Any) -> None:
        """Convert the next message. Raises ChatFormatError."""
        message = read_message(value)
        for call in _calls(value):
            self._calls[str(call.get("id"))] = len(self._calls), call.get("function", call)["name"]
        if message["role"] != "tool":
            self._results.clear()
            self.messages.append(message)
            return
        unknown = len(self._calls), ""
        place, name = self._calls.get(str(value.get("tool_call_id") or value.get("id")), unknown)
        if name := name or value.get("name") or "":
            message["name"] = name
        self._results.append((place, message))
        self._results.sort(key=lambda each: each[0])
        sorted_results = [each for _, each in self._results]
        self.messages[len(self.messages) + 1 - len(sorted_results) :] = sorted_results


def read_message(value: Any) -> Message:
    """Convert one of OpenAI's messages to ours. Raises ChatFormatError.

    Fields for text, thinking, calls and errors are read under the names that common files and
    servers use. Other fields, such as `timestamp`, are ignored.
    """
    role = value.get("role") if isinstance(value, dict) else None
    if role not in ROLES:
        raise ChatFormatError(f"expected a message with a role among {ROLES}, got {value!r:.200}")
    thought, content = _words(value.get("content"))
    calls = _calls(value)
    if calls and role != "assistant":
        raise ChatFormatError(
            f"a {role}'s message with a call of a tool: only the assistant's calls can be learned "
            "or shown; describe the call in text instead"
        )
    if thought and role != "assistant":
        raise ChatFormatError(f"a {role}'s message with a part of thinking; only assistants think")
    content += calls_as_text(calls)
    if isinstance(refusal := value.get("refusal"), str) and refusal:
        content = f"{content}\n{refusal}" if content else check_text(refusal)
    if isinstance(value.get("audio"), dict):
        raise ChatFormatError("a message with audio; only text can be learned or shown")
    thoughts = [value[key] for key in THOUGHTS if value.get(key)] or [thought]
    if role == "assistant" and isinstance(thoughts[0], str) and thoughts[0]:
        content = f"<think>\n{check_text(thoughts[0])}\n</think>\n\n{content}"
    ours: Any = {"developer": "system", "function": "tool"}.get(role, role)
    message: Message = {"role": ours, "content": content}
    # The format has no field for errors. MCP and Anthropic use `is_error`, tau2 uses `error`.
    failed = value.get("is_error") is True or value.get("error") is True
    if message["role"] == "tool" and (content.startswith("error: ") or failed):
        message["is_error"] = True
    if message["role"] == "assistant" and "weight" in value:  # OpenAI's fine-tuning files
        if value["weight"] not in (0, 1):
            raise ChatFormatError(f"a weight is 0 (not trained) or 1, got {value['weight']!r:.100}")
        message["weight"] = int(value["weight"])
    return message


def write_turn(turn: Turn, *, with_tools: bool) -> dict[str, Any]:
    """Convert a sampled turn to OpenAI's assistant message, with separate calls and thinking.

    A malformed call stays in the content, as on other servers.
    """
    content, calls = words_and_calls(turn, with_tools=with_tools)
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    if calls:
        message["tool_calls"] = [_written(call) for call in calls]
    if turn.thought:
        message["reasoning_content"] = turn.thought
    return message


def words_and_calls(turn: Turn, *, with_tools: bool) -> tuple[str, list[ToolCall]]:
    """Return the text of a turn and its calls. Without tools, everything is text."""
    words, calls = "" if with_tools else turn.said, []
    for piece in turn.pieces if with_tools else ():
        if isinstance(piece, WrittenCall) and not isinstance(piece.call, str):
            calls.append(piece.call)
        else:
            words += piece if isinstance(piece, str) else piece.text
    return words, calls


def _written(call: ToolCall) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": function}


def _words(content: Any) -> tuple[str, str]:
    """Return (the thinking, the text) of a message's content, which is text or a list of parts."""
    if content is None:
        return "", ""
    if isinstance(content, str):
        return "", content
    if not isinstance(content, list):
        raise ChatFormatError(f"expected text as content, got {content!r:.200}")
    thought, said = "", ""
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else None
        text = part.get(kind if kind in ("refusal", "thinking") else "text") if kind else None
        if kind not in (*TEXTS, "refusal", "thinking") or not isinstance(text, str):
            raise ChatFormatError(
                f"expected text as content, got a part {part!r:.200}; only text can be learned or "
                "shown"
            )
        if kind == "thinking":
            thought += text
        else:
            said += text
    return thought, said


def _calls(value: dict[str, Any]) -> list[Any]:
    """Return the tool calls of a message, including OpenAI's deprecated `function_call`.

    A call of a `custom` tool, whose input is free text, gets the text as its argument `input`.
    """
    calls = value.get("tool_calls")
    if isinstance(calls, str) and calls:  # a text column of a data set
        try:
            calls = read_json(calls)
        except ValueError as e:
            raise ChatFormatError(f"expected tool calls, got {calls!r:.200} ({e})") from None
    calls = _listed(calls)
    if old := value.get("function_call"):
        calls = [*calls, {"function": old}]
    return [_as_function(call) for call in calls]


def _as_function(call: Any) -> Any:
    custom = call.get("custom") if isinstance(call, dict) else None
    if not isinstance(custom, dict) or "function" in call:
        return call
    if not isinstance(said := custom.get("input"), str):
        raise ChatFormatError(f"expected a custom call with text as input, got {call!r:.200}")
    function = {"name": custom.get("name"), "arguments": {"input": said}}
    return {"id": call.get("id"), "function": function}


def _listed(calls: Any) -> list[Any]:
    return calls if isinstance(calls, list) else [calls] if calls else []


def calls_as_text(calls: Any) -> str:
    """Return tool calls in the text form. Raises ChatFormatError."""
    out = []
    for call in _listed(calls):
        try:
            function = call.get("function", call)
            arguments = function.get("arguments", {})
            arguments = read_json(arguments or "{}") if isinstance(arguments, str) else arguments
            if not isinstance(arguments, dict):
                raise ValueError("arguments are a JSON object")
            name = check_text(function["name"])
            text = json.dumps({"name": name, "arguments": arguments})
        except (ValueError, KeyError, AttributeError, TypeError) as e:
            raise ChatFormatError(
                f"expected a tool call with a name and JSON arguments, got {call!r:.200} "
                f"({type(e).__name__}: {e})"
            ) from None
        out.append(f"<tool_call>{text}</tool_call>")
    return "\n".join(out)
