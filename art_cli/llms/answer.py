"""Checks of a server's answer: only what holds is believed. Pure functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from art_cli.llms.base import ChatMessage, Reply, calls_of
from art_cli.llms.thoughts import without_thoughts

MOST_TOKENS = 10_000_000  # no model reads or writes more in one call
SHOWN = 200  # characters of what is no answer


class BadAnswer(Exception):
    """A response that is no answer of a model; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response, and its tokens."""

    message: ChatMessage  # in OpenAI's form
    finish: Any
    read: int | None  # tokens, as the server counts them; None: it does not, or it counts nonsense
    written: int | None
    size: int  # bytes of the message: it is never more tokens
    usd: float | None = None  # as litellm knows it

    @property
    def is_counted(self) -> bool:
        """True if the server says what the answer took."""
        return self.read is not None and self.written is not None

    def reply(self, usd: float) -> Reply:
        """Return it as what was asked for; `usd` is what it cost."""
        return Reply(
            text=without_thoughts(self.message.get("content") or ""),
            cut=self.finish == "length",
            calls=calls_of(self.message),
            message=self.message,
            num_read=self.read or 0,
            num_written=self.written or 0,
            usd=usd,
        )


def read_body(content: bytes) -> dict[str, Any]:
    """Return the body of a response as an object. Raises BadAnswer."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as e:
        what = repr(content[:SHOWN].decode(errors="replace")) if content.strip() else "nothing"
        raise BadAnswer(f"expected a chat completion as JSON, got {what} ({e})") from None
    if not isinstance(body, dict):
        raise BadAnswer(f"expected a chat completion, got {in_complaint(body)}")
    return body


def first_choice(body: dict[str, Any]) -> Answer:
    """Return the answer in the body of a chat completion. Raises BadAnswer."""
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise BadAnswer(f"expected an answer with choices, got {in_complaint(body)}")
    return answer_of(choice.get("message"), choice.get("finish_reason"), body.get("usage"))


def answer_of(message: Any, finish: Any, usage: Any, usd: float | None = None) -> Answer:
    """Return an assistant's message, checked, with what the server says that it took.

    Raises BadAnswer.
    """
    if not isinstance(message, dict):
        raise BadAnswer(f"expected a message, got {in_complaint(message)}")
    try:  # halves of surrogate pairs are no text for anyone
        text = json.dumps(message, ensure_ascii=False).encode(errors="replace")
        message = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BadAnswer(f"the message in the answer cannot be read: {e}") from None
    message |= {"content": _text(message.get("content"))}
    if calls := message.get("tool_calls"):
        message["tool_calls"] = [_call(c) for c in calls] if isinstance(calls, list) else _no(calls)
    said = bool(message["content"] or calls)
    usage = usage if isinstance(usage, dict) else {}
    return Answer(
        message=message,
        finish=finish,
        read=_count(usage.get("prompt_tokens"), 1),
        written=_count(usage.get("completion_tokens"), int(said)),
        size=len(text),
        usd=usd,
    )


def _text(content: Any) -> str | None:
    """Return the content of a message, which some servers give in parts."""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") in (None, "text")]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts)
    if content is not None and not isinstance(content, str):
        raise BadAnswer(f"expected text as the content of the answer, got {in_complaint(content)}")
    return content


def _call(call: Any) -> dict[str, Any]:
    """Return a tool call whose arguments are text: some servers give an object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return _no(call)
    arguments = function.get("arguments") or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return {**call, "function": {**function, "arguments": arguments}}


def _no(call: Any) -> Any:
    raise BadAnswer(f"expected tool calls with a function and its name, got {in_complaint(call)}")


def _count(value: Any, least: int) -> int | None:
    """Return a number of tokens, if it can be one: NaN is not, nor is True."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if least <= value <= MOST_TOKENS else None


def in_complaint(value: Any, most: int = SHOWN) -> str:
    """Return what a model answered as JSON, cut to so many characters, for an error message."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # nested too deeply, or a number of thousands of digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else text[:most] + "..."
