"""What a program may ask for at /v1/chat/completions, and what is said to one that asks wrongly."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from art_cli.chat import ChatFormatError, read_messages
from art_cli.types import Message

MAX_STOPS = 4  # as at OpenAI


class RequestError(Exception):
    """An answer that is an HTTP error, in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def body(self) -> dict[str, Any]:
        """As OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "code": self.code, "param": None}}


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
    among those without effect, or what is trained on would not be what the update assumes.
    """

    model: str = "policy"
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    tools: list[_Tool] | None = None
    tool_choice: Literal["auto", "none", "required"] | _Choice | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Annotated[list[str], Field(max_length=MAX_STOPS)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=0)] | None = None
    response_format: _Format | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    seed: int | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Raises RequestError, with every mistake."""
        try:
            return cls.model_validate(json.loads(body))
        except ValidationError as e:
            mistakes = [f"{'.'.join(map(str, m['loc'])) or 'body'}: {m['msg']}" for m in e.errors()]
            raise RequestError(400, "; ".join(mistakes)) from None
        except (ValueError, RecursionError) as e:
            raise RequestError(400, f"the body is not JSON: {e}") from None

    def conversation(self) -> list[Message]:
        """The messages as ours. Raises RequestError."""
        try:
            messages = read_messages(self.messages)
        except ChatFormatError as e:
            raise RequestError(400, f"messages: {e}") from None
        if messages[-1]["role"] == "assistant":
            raise RequestError(400, "messages: the last one is the assistant's own")
        return messages

    def offered_tools(self) -> list[dict[str, Any]]:
        """The tools that the model is shown: none where it may call none. Raises RequestError."""
        if self.tool_choice in ("required",) or isinstance(self.tool_choice, _Choice):
            names = [t.function.name for t in self.tools or []]
            wanted = self.forced_tool()
            if not names or (wanted and wanted not in names):
                raise RequestError(400, f"tool_choice: {wanted or 'a tool'} is not among the tools")
        if self.tool_choice == "none":
            return []
        return [t.model_dump() for t in self.tools or []]

    def forced_tool(self) -> str | None:
        """The tool that has to be called, where it is named."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, _Choice) else None

    def opening(self) -> str:
        """How the turn has to begin, so that it calls what it must."""
        if name := self.forced_tool():
            return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": '
        return '<tool_call>{"name": "' if self.tool_choice == "required" else ""

    def limit(self) -> int | None:
        """Tokens of the turn."""
        return self.max_completion_tokens or self.max_tokens
