"""Anthropic's messages API: POST /v1/messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from art_cli.rollout.gateway.apis.bodies import Bodies
from art_cli.rollout.gateway.apis.continued import Continued
from art_cli.rollout.gateway.apis.fields import check_fields
from art_cli.rollout.gateway.apis.messages.answer import event, events_of, message_of
from art_cli.rollout.gateway.apis.messages.blocks import add_message, text_of
from art_cli.rollout.gateway.apis.messages.tools import MessagesTool, definitions_of, functions_of
from art_cli.rollout.gateway.apis.request_body import (
    MAX_MESSAGES,
    MAX_TOOLS,
    Stops,
    conversation,
    copied,
    readings,
)
from art_cli.rollout.gateway.apis.tool_choice import Offer, offer
from art_cli.rollout.gateway.asked import CONTEXT, Answered, Asked, RequestError

KINDS = {  # error types by HTTP status
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}

# Anthropic's tool runner sends whole histories after an error with this code.
UNTHREADED = "thread_unsupported_request"


class _Choice(BaseModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(BaseModel):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    display: str | None = None


class _Format(BaseModel):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class _Output(BaseModel):
    format: _Format | None = None


class KnownMessages:
    """The messages of a caller that were read before, and the definitions of its tools."""

    def __init__(self) -> None:
        self.definitions: dict[str, str] = {}
        self.blocks = Continued[list[dict[str, Any]]](
            copied, partial(add_message, self.definitions)
        )
        self.messages = readings()


class CountRequest(BaseModel):
    """A request to count tokens, which needs no limit. fields.py lists fields without effect."""

    model_config = ConfigDict(extra="allow")
    _drops_hosted: bool = PrivateAttr(default=False)
    model: str = "policy"
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    system: str | list[dict[str, Any]] | None = None
    tools: Annotated[list[MessagesTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: _Choice | None = None
    thinking: _Thinking | None = None
    output_config: _Output | None = None
    output_format: _Format | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop_sequences: Stops | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    thread: dict[str, Any] | None = None  # a history that the server stores

    def asked(self, size: int, known: KnownMessages) -> Asked:
        """Convert the request to `Asked`. Raises RequestError."""
        unknown = check_fields(self, "messages")
        if self.thread is not None:
            raise RequestError(400, "thread: send all messages with each request", UNTHREADED)
        known.definitions.update(definitions_of(self.tools or []))
        said = known.blocks.read(self.messages, [])
        messages, prefill = conversation([*self.system_said, *said], "messages", known.messages)
        offered = self.offered
        wanted = self.output_format or (self.output_config and self.output_config.format)
        choice = self.tool_choice
        return Asked(
            messages=messages,
            size=size,
            tools=offered.tools,
            must_call=offered.must_call,
            forced_tool=offered.forced,
            parallel=not (choice and choice.disable_parallel_tool_use),
            prefill=prefill,
            limit=self.max_tokens,
            stops=tuple(self.stop_sequences or ()),
            response_schema=wanted.schema_ if wanted else None,
            model=self.model,
            unknown=unknown,
            temperature=self.temperature,
            top_p=self.top_p,
        )

    @property
    def shows_thinking(self) -> bool:
        """True if the answer has thinking blocks: clients that do not ask for them expect none."""
        return self.thinking is not None and self.thinking.type != "disabled"

    @cached_property
    def system_said(self) -> list[dict[str, Any]]:
        """The system prompt as a list of at most one message. Raises RequestError."""
        text = text_of(self.system, "system") if self.system else ""
        return [{"role": "system", "content": text}] if text else []

    @cached_property
    def offered(self) -> Offer:
        """The tools that the policy may call. Raises RequestError."""
        tools = functions_of(self.tools or [], drops_hosted=self._drops_hosted)
        choice = self.tool_choice
        if choice is None or choice.type == "auto":
            return offer(tools, "auto")
        if choice.type == "tool":
            if choice.name is None:
                raise RequestError(400, "tool_choice.name: Field required")
            return offer(tools, "required", forced=choice.name)
        return offer(tools, "required" if choice.type == "any" else "none")


class MessagesRequest(CountRequest):
    """A request for an answer."""

    max_tokens: Annotated[int, Field(ge=1)] = Field()  # required, as in Anthropic's own API


class MessagesApi:
    """Implements Api."""

    heartbeat = event("ping", {})

    def __init__(self, *, counts: bool = False, drops_hosted: bool = False) -> None:
        self._drops_hosted = drops_hosted
        model = CountRequest if counts else MessagesRequest
        self._bodies = Bodies[CountRequest](model, "messages")
        self._known = KnownMessages()

    def read(self, body: bytes) -> MessagesQuestion:
        request = self._bodies.read(body)
        request._drops_hosted = self._drops_hosted
        return MessagesQuestion(request, request.asked(len(body), self._known))

    def error(self, error: RequestError) -> dict[str, Any]:
        return _error(error)


@dataclass(frozen=True, slots=True)
class MessagesQuestion:
    """Implements Question."""

    request: CountRequest
    asked: Asked

    @property
    def streamed(self) -> bool:
        return bool(self.request.stream)

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        return message_of(answers[0], self.asked.model, thinking=self.request.shows_thinking)

    def events(self, answers: list[Answered]) -> Iterator[str]:
        return events_of(self.body(answers))

    def failed(self, error: RequestError) -> str:
        return event("error", _error(error))


def _error(error: RequestError) -> dict[str, Any]:
    said = f"prompt is too long: {error}" if error.code == CONTEXT else str(error)
    shown: dict[str, Any] = {"type": KINDS.get(error.status, "api_error"), "message": said}
    if error.code == UNTHREADED:
        shown["details"] = {"error_code": UNTHREADED, "unsupported": ["thread"]}
    return {"type": "error", "error": shown, "request_id": None}
