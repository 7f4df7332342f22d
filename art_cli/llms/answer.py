"""Validation of a server's answer, as pure functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from art_cli.llms.base import ChatMessage, Reply, calls_of
from art_cli.llms.thoughts import without_thoughts

MOST_TOKENS = 10_000_000  # upper bound of plausible token counts
SHOWN = 200  # characters of an invalid value in an error message


class BadAnswer(Exception):
    """A response that is not a valid answer of a model. The text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A valid response with its token counts."""

    message: ChatMessage  # in OpenAI's format
    finish: Any
    read: int | None  # prompt tokens reported by the server; None: none or implausible
    written: int | None
    size: int  # bytes of the message, an upper bound of its tokens
    usd: float | None = None  # US dollars, computed by litellm

    @property
    def is_counted(self) -> bool:
        """True if the server reports the token counts."""
        return self.read is not None and self.written is not None

    def reply(self, usd: float) -> Reply:
        """Return the answer as a `Reply` that cost `usd` US dollars."""
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
    """Return a checked assistant message with the token counts that the server reports.

    Raises BadAnswer.
    """
    if not isinstance(message, dict):
        raise BadAnswer(f"expected a message, got {in_complaint(message)}")
    try:  # lone surrogates are not valid text
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
    """Return the content of a message as text. Some servers send it in parts."""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get("text") for part in content if part.get("type") in (None, "text")]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts)
    if content is not None and not isinstance(content, str):
        raise BadAnswer(f"expected text as the content of the answer, got {in_complaint(content)}")
    return content


def _call(call: Any) -> dict[str, Any]:
    """Return a tool call with its arguments as text. Some servers send an object."""
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
    """Return a token count if it is plausible, else None. NaN and True are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if least <= value <= MOST_TOKENS else None


def in_complaint(value: Any, most: int = SHOWN) -> str:
    """Return a model's value as JSON, cut to `most` characters, for an error message."""
    try:
        text = json.dumps(value, default=str)
    except (ValueError, RecursionError):  # nested too deeply, or a number of thousands of digits
        return f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= most else text[:most] + "..."
