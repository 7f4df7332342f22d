"""Parsing of a request body as a protocol's pydantic model, and the limits that all share."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from art_cli.chat.openai_format import ChatFormatError, Reading
from art_cli.rollout.gateway.apis.continued import Continued
from art_cli.rollout.gateway.asked import RequestError
from art_cli.system.untrusted import read_json
from art_cli.types import Message

M = TypeVar("M", bound=BaseModel)

MAX_MISTAKES = 20  # listed in one error
MAX_MESSAGES = 2**14
MAX_TOOLS = 2**10
MAX_TURNS = 16  # of one request; each is a separate sequence
MAX_TOP_LOGPROBS = 20  # as at OpenAI
MAX_STOPS = 64
MAX_STOP = 256  # characters; each new token is searched for them


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_STOP)]],
    Field(max_length=MAX_STOPS),
    BeforeValidator(_listed),
]


def read_as(model: type[M], body: bytes) -> M:
    """Parse the body as `model`. Raises RequestError, which lists the mistakes."""
    try:
        value = read_json(body)
    except ValueError as e:
        raise RequestError(400, f"the body is not JSON that can be used: {e}") from None
    return validated(model, value, "")


def validated(model: type[M], value: Any, where: str) -> M:
    """Validate the value at path `where` of the body. Raises RequestError with the mistakes."""
    try:
        return model.model_validate(value)
    except ValidationError as e:
        before = where.split(".") if where else []
        mistakes = [
            f"{'.'.join(map(str, [*before, *m['loc']])) or 'body'}: {m['msg']}"
            for m in e.errors()[:MAX_MISTAKES]
        ]
        raise RequestError(400, "; ".join(mistakes)) from None


def readings() -> Continued[Reading]:
    """Return an incremental reader of one caller's messages."""
    return Continued(Reading.copied, lambda reading, _, message: reading.add(message))


def copied(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a copy of messages to which items can be added, also to a last assistant message."""
    if not messages or messages[-1]["role"] != "assistant":
        return list(messages)
    last = dict(messages[-1])
    if "tool_calls" in last:
        last["tool_calls"] = list(last["tool_calls"])
    return [*messages[:-1], last]


def conversation(
    messages: list[dict[str, Any]], where: str, known: Continued[Reading]
) -> tuple[list[Message], str]:
    """Convert messages in OpenAI's form to ours. Return them and the beginning of the next turn.

    A last message of the assistant is the beginning of the turn to sample. Raises RequestError.
    """
    try:
        read = list(known.read(messages, Reading()).messages)
    except ChatFormatError as e:
        raise RequestError(400, f"{where}: {e}") from None
    prefill = ""
    if read[-1]["role"] == "assistant":
        if messages[-1].get("tool_calls"):
            raise RequestError(
                400,
                f"{where}: the last one is the assistant's own and calls tools; "
                "send the results of the calls after it",
            )
        prefill = read.pop()["content"]
    if not read:
        raise RequestError(400, f"{where}: the assistant's message needs a message before it")
    return read, prefill
