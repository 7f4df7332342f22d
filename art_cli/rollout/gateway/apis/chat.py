"""OpenAI's chat completions: POST /v1/chat/completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from art_cli.chat.openai_format import Reading
from art_cli.rollout.gateway.apis.bodies import Bodies
from art_cli.rollout.gateway.apis.continued import Continued
from art_cli.rollout.gateway.apis.custom_tool import custom_function, custom_input
from art_cli.rollout.gateway.apis.fields import check_fields
from art_cli.rollout.gateway.apis.openai_parts import error_body, pieces, token_logprobs, usage
from art_cli.rollout.gateway.apis.request_body import (
    MAX_MESSAGES,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    MAX_TURNS,
    Stops,
    conversation,
    readings,
)
from art_cli.rollout.gateway.apis.tool_choice import Mode, Offer, offer
from art_cli.rollout.gateway.asked import Answered, AnsweredCall, Asked, RequestError


class _Function(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(min_length=1)]


class _Syntax(BaseModel):
    type: Literal["text", "grammar"]
    grammar: dict[str, Any] | None = None


class _Custom(BaseModel):
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    format: _Syntax | None = None


class _Tool(BaseModel):
    type: Literal["function", "custom"]
    function: _Function | None = None
    custom: _Custom | None = None

    def shown(self, where: str) -> dict[str, Any]:
        """Return the tool as a function. Raises RequestError."""
        if self.type == "custom" and self.custom:
            grammar = self.custom.format.grammar if self.custom.format else None
            made = custom_function(self.custom.name, self.custom.description, grammar)
        elif self.type == "function" and self.function:
            made = self.function.model_dump()
        else:
            raise RequestError(400, f"{where}.{self.type}: Field required")
        return {"type": "function", "function": made}


class _Named(BaseModel):
    name: str


class _Choice(BaseModel):
    type: Literal["function"]
    function: _Named

    @property
    def name(self) -> str:
        return self.function.name


class _CustomChoice(BaseModel):
    type: Literal["custom"]
    custom: _Named

    @property
    def name(self) -> str:
        return self.custom.name


class _Subset(BaseModel):
    mode: Literal["auto", "required"]
    tools: list[_Choice | _CustomChoice]


class _Allowed(BaseModel):
    type: Literal["allowed_tools"]
    allowed_tools: _Subset


class _Schema(BaseModel):
    schema_: Annotated[dict[str, Any], Field(alias="schema", default_factory=dict)]


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class ChatRequest(BaseModel):
    """The fields that have an effect; fields.py lists the others.

    The experiment's config decides how tokens are sampled. In training, a request's `temperature`,
    `top_p` and `seed` have no effect: the update assumes the distribution of the config.
    """

    model_config = ConfigDict(extra="allow")
    model: str = "policy"
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[_Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Mode | _Choice | _CustomChoice | _Allowed | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Stops | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: _Format | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: int | None = None

    def asked(self, size: int, known: Continued[Reading]) -> Asked:
        """Convert the request to `Asked`. Raises RequestError."""
        unknown = check_fields(self, "chat")
        messages, prefill = conversation(self.messages, "messages", known)
        offered = self.offered
        return Asked(
            messages=messages,
            size=size,
            tools=offered.tools,
            must_call=offered.must_call,
            forced_tool=offered.forced,
            parallel=self.parallel_tool_calls is not False,
            prefill=prefill,
            limit=self.max_completion_tokens or self.max_tokens,
            stops=tuple(self.stop or ()),
            n=self.n or 1,
            logprobs=bool(self.logprobs),
            top_logprobs=self.top_logprobs or 0,
            response_schema=self._schema(),
            model=self.model,
            unknown=unknown,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )

    @cached_property
    def offered(self) -> Offer:
        """The tools that the policy may call. Raises RequestError."""
        given = self.tools or []
        tools = [tool.shown(f"tools.{number}") for number, tool in enumerate(given)]
        functions = {t.function.name for t in given if t.type == "function" and t.function}
        if twice := functions & self.custom_tools:
            raise RequestError(400, f"tools: two tools are called {min(twice)!r:.200}")
        choice = self.tool_choice or "auto"
        if isinstance(choice, _Choice | _CustomChoice):
            return offer(tools, "required", forced=choice.name)
        if isinstance(choice, _Allowed):
            subset = choice.allowed_tools
            return offer(tools, subset.mode, only=[t.name for t in subset.tools])
        return offer(tools, choice)

    @cached_property
    def custom_tools(self) -> set[str]:
        """The names of its tools whose input is free text."""
        return {t.custom.name for t in self.tools or [] if t.type == "custom" and t.custom}

    def _schema(self) -> dict[str, Any] | None:
        wanted = self.response_format
        if wanted is None or wanted.type == "text":
            return None
        if wanted.type == "json_object":
            return {"type": "object"}
        if wanted.json_schema is None:
            raise RequestError(400, "response_format.json_schema: Field required")
        return wanted.json_schema.schema_


class ChatApi:
    """Implements Api."""

    heartbeat = ": still sampling\n\n"

    def __init__(self) -> None:
        self._bodies = Bodies(ChatRequest, "messages")
        self._readings = readings()

    def read(self, body: bytes) -> ChatQuestion:
        request = self._bodies.read(body)
        return ChatQuestion(request, request.asked(len(body), self._readings))

    def error(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)


@dataclass(frozen=True)
class ChatQuestion:
    """Implements Question."""

    request: ChatRequest
    asked: Asked

    @property
    def streamed(self) -> bool:
        return bool(self.request.stream)

    @cached_property
    def _head(self) -> dict[str, Any]:
        id = f"chatcmpl-{secrets.token_hex(12)}"
        return {"id": id, "created": int(time.time()), "model": self.asked.model}

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        choices = [
            {
                "index": index,
                "message": _message(answer, self.request.custom_tools),
                "finish_reason": _finish_reason(answer),
                "logprobs": self._logprobs(answer),
            }
            for index, answer in enumerate(answers)
        ]
        used = usage(answers)
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": used}

    def _logprobs(self, answer: Answered) -> dict[str, Any] | None:
        return {"content": token_logprobs(answer)} if self.asked.logprobs else None

    def events(self, answers: list[Answered]) -> Iterator[str]:
        head = {**self._head, "object": "chat.completion.chunk"}
        for index, answer in enumerate(answers):
            for delta in _deltas(answer, self.request.custom_tools):
                choice = {"index": index, "delta": delta, "finish_reason": None}
                yield _event(head | {"choices": [choice]})
            last = {"index": index, "delta": {}, "finish_reason": _finish_reason(answer)}
            if self.asked.logprobs:
                last["logprobs"] = self._logprobs(answer)
            yield _event(head | {"choices": [last]})
        if (self.request.stream_options or {}).get("include_usage"):
            yield _event(head | {"choices": [], "usage": usage(answers)})
        yield "data: [DONE]\n\n"

    def failed(self, error: RequestError) -> str:
        return f"{_event(error_body(error))}data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _message(answer: Answered, custom_tools: set[str]) -> dict[str, Any]:
    content = answer.words or (None if answer.calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.calls:
        message["tool_calls"] = [_call(call, custom_tools) for call in answer.calls]
    if answer.thought:
        message["reasoning_content"] = answer.thought
    return message


def _call(call: AnsweredCall, custom_tools: set[str]) -> dict[str, Any]:
    if call.name in custom_tools:
        custom = {"name": call.name, "input": custom_input(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _finish_reason(answer: Answered) -> str:
    return "tool_calls" if answer.calls else answer.ended


def _deltas(answer: Answered, custom_tools: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the deltas of a stream that together make up a whole message."""
    yield {"role": "assistant", "content": ""}
    for key, text in (("reasoning_content", answer.thought), ("content", answer.words)):
        for piece in pieces(text):
            yield {key: piece}
    for index, call in enumerate(answer.calls):
        begun = _call(call, custom_tools)
        kind = begun["type"]
        grows = "input" if kind == "custom" else "arguments"
        yield {"tool_calls": [begun | {"index": index, kind: begun[kind] | {grows: ""}}]}
        for piece in pieces(begun[kind][grows]):
            yield {"tool_calls": [{"index": index, kind: {grows: piece}}]}
