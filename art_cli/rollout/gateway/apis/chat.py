"""OpenAI's chat completions: POST /v1/chat/completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from art_cli.models.openai_format import ChatFormatError, read_messages
from art_cli.rollout.gateway.apis.openai_errors import error_body
from art_cli.rollout.gateway.apis.request_body import read_as
from art_cli.rollout.gateway.asked import Answered, AnsweredCall, Asked, RequestError
from art_cli.types import Message

MAX_STOPS = 4  # as at OpenAI
MAX_MESSAGES = 2**14
MAX_TOOLS = 2**10
MAX_STOP = 256  # characters: each token is searched for them
PIECE = 24  # characters of a streamed piece


class _Function(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(min_length=1)]


class _Tool(BaseModel):
    type: Literal["function"]
    function: _Function


class _Named(BaseModel):
    name: str


class _Choice(BaseModel):
    type: Literal["function"]
    function: _Named


class _Format(BaseModel):
    type: Literal["text"]


class ChatRequest(BaseModel):
    """The keys that have an effect; others are accepted and have none.

    What is sampled is the experiment's to say: `temperature`, `top_p` and `seed` of a request are
    without effect in training, or what is trained on would not be what the update assumes.
    """

    model: str = "policy"
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[_Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | _Choice | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: (
        Annotated[list[Annotated[str, Field(max_length=MAX_STOP)]], Field(max_length=MAX_STOPS)]
        | None
    ) = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    response_format: _Format | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: int | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    def asked(self, size: int) -> Asked:
        """Return what it asks of the policy. Raises RequestError."""
        forced = self.tool_choice.function.name if isinstance(self.tool_choice, _Choice) else None
        return Asked(
            messages=self._conversation(),
            size=size,
            tools=self._offered(forced),
            must_call=self.tool_choice == "required" or forced is not None,
            forced_tool=forced,
            limit=self.max_completion_tokens or self.max_tokens,
            stops=tuple(self.stop or ()),
            logprobs=bool(self.logprobs),
            model=self.model,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )

    def _conversation(self) -> list[Message]:
        try:
            messages = read_messages(self.messages)
        except ChatFormatError as e:
            raise RequestError(400, f"messages: {e}") from None
        if messages[-1]["role"] == "assistant":
            raise RequestError(400, "messages: the last one is the assistant's own")
        return messages

    def _offered(self, forced: str | None) -> list[dict[str, Any]]:
        """Return the tools that the model is shown: none where it may call none."""
        if self.tool_choice == "required" or forced:
            names = [t.function.name for t in self.tools or []]
            if not names or (forced and forced not in names):
                raise RequestError(400, f"tool_choice: {forced or 'a tool'} is not among the tools")
        if self.tool_choice == "none":
            return []
        return [t.model_dump() for t in self.tools or []]


class ChatApi:
    """Implements Api."""

    heartbeat = ": still sampling\n\n"

    def read(self, body: bytes) -> ChatQuestion:
        request = read_as(ChatRequest, body)
        return ChatQuestion(request, request.asked(len(body)))

    def error(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)

    def error_events(self, error: RequestError) -> str:
        return f"data: {json.dumps(error_body(error))}\n\ndata: [DONE]\n\n"


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
                "message": _message(answer),
                "finish_reason": _finish_reason(answer),
                "logprobs": _logprobs(answer) if self.asked.logprobs else None,
            }
            for index, answer in enumerate(answers)
        ]
        usage = _usage(answers)
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage}

    def events(self, answers: list[Answered]) -> Iterator[str]:
        head = {**self._head, "object": "chat.completion.chunk"}
        for index, answer in enumerate(answers):
            for delta in _deltas(answer):
                choice = {"index": index, "delta": delta, "finish_reason": None}
                yield _event(head | {"choices": [choice]})
            last = {"index": index, "delta": {}, "finish_reason": _finish_reason(answer)}
            if self.asked.logprobs:
                last["logprobs"] = _logprobs(answer)
            yield _event(head | {"choices": [last]})
        if (self.request.stream_options or {}).get("include_usage"):
            yield _event(head | {"choices": [], "usage": _usage(answers)})
        yield "data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def _message(answer: Answered) -> dict[str, Any]:
    content = answer.words or (None if answer.calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    if answer.thought:
        message["reasoning_content"] = answer.thought
    return message


def _call(call: AnsweredCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _finish_reason(answer: Answered) -> str:
    return "tool_calls" if answer.calls else answer.ended


def _usage(answers: list[Answered]) -> dict[str, int]:
    sampled = sum(len(a.completion.token_ids) for a in answers)
    read = answers[0].num_prompt
    return {"prompt_tokens": read, "completion_tokens": sampled, "total_tokens": read + sampled}


def _logprobs(answer: Answered) -> dict[str, Any]:
    content = [
        {"token": t, "logprob": p, "bytes": list(t.encode()), "top_logprobs": []}
        for t, p in zip(answer.tokens, answer.completion.logprobs, strict=True)
    ]
    return {"content": content}


def _deltas(answer: Answered) -> Iterator[dict[str, Any]]:
    """Return a whole message in the pieces of a stream."""
    yield {"role": "assistant", "content": ""}
    for key, text in (("reasoning_content", answer.thought), ("content", answer.words)):
        for piece in pieces(text):
            yield {key: piece}
    for index, call in enumerate(answer.calls):
        begun = _call(call)
        function = begun["function"] | {"arguments": ""}
        yield {"tool_calls": [begun | {"index": index, "function": function}]}
        for piece in pieces(begun["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def pieces(text: str) -> list[str]:
    """Return a text in the pieces of a stream."""
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
