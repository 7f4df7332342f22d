"""What a program may ask for at /v1/chat/completions, and what is said to one that asks wrongly."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
)

from art_cli.errors import UsageError
from art_cli.models.openai_format import ChatFormatError, read_messages
from art_cli.models.render import Conversation, TooLongError
from art_cli.system.deadline import beside
from art_cli.system.outside import read_json
from art_cli.types import Message

CONTEXT = "context_length_exceeded"  # OpenAI's word
MAX_STOPS = 4  # as at OpenAI
MAX_MESSAGES = 2**14
MAX_TOOLS = 2**10
MAX_MISTAKES = 20  # that one answer names
MAX_STOP = 256  # characters: each token is searched for them


class RequestError(Exception):
    """An answer that is an HTTP error, in OpenAI's form."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients read it."""
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
    seed: int | None = None
    _size: int = PrivateAttr(0)

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Raises RequestError, with the mistakes."""
        try:
            asked = cls.model_validate(read_json(body))
            asked._size = len(body)
            return asked
        except ValidationError as e:
            mistakes = [
                f"{'.'.join(map(str, m['loc'])) or 'body'}: {m['msg']}"
                for m in e.errors()[:MAX_MISTAKES]
            ]
            raise RequestError(400, "; ".join(mistakes)) from None
        except ValueError as e:
            raise RequestError(400, f"the body is not JSON that can be used: {e}") from None

    @property
    def size(self) -> int:
        """Bytes of the body that it was read from."""
        return self._size

    def conversation(self) -> list[Message]:
        """Return the messages as ours. Raises RequestError."""
        try:
            messages = read_messages(self.messages)
        except ChatFormatError as e:
            raise RequestError(400, f"messages: {e}") from None
        if messages[-1]["role"] == "assistant":
            raise RequestError(400, "messages: the last one is the assistant's own")
        return messages

    def offered_tools(self) -> list[dict[str, Any]]:
        """Return the tools that the model is shown: none where it may call none.

        Raises RequestError.
        """
        if self.tool_choice in ("required",) or isinstance(self.tool_choice, _Choice):
            names = [t.function.name for t in self.tools or []]
            wanted = self.forced_tool()
            if not names or (wanted and wanted not in names):
                raise RequestError(400, f"tool_choice: {wanted or 'a tool'} is not among the tools")
        if self.tool_choice == "none":
            return []
        return [t.model_dump() for t in self.tools or []]

    def forced_tool(self) -> str | None:
        """Return the tool that has to be called, where it is named."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, _Choice) else None

    @property
    def must_call(self) -> bool:
        """Whether the turn has to call a tool."""
        return self.tool_choice == "required" or self.forced_tool() is not None

    def limit(self) -> int | None:
        """Return how many tokens the turn may have."""
        return self.max_completion_tokens or self.max_tokens


async def read_in(
    talk: Conversation, messages: list[Message], asked: ChatRequest, room: int
) -> int:
    """Add what a request says beyond a conversation. Return the number of tokens of all of it.

    Raises RequestError where the template refuses it, or there is no room to answer.
    """
    try:
        opening = talk.opening(asked.forced_tool()) if asked.must_call else ""
        await beside(asked.size, talk.add_messages, messages, opening, room)
    except UsageError as e:  # the template, which other models' users do not know of
        raise RequestError(400, str(e)) from None
    except TooLongError as e:
        raise _too_long(str(e), room) from None
    if len(talk.ids) >= room:
        raise _too_long(f"{len(talk.ids)} tokens", room)
    return len(talk.ids)


def _too_long(length: str, room: int) -> RequestError:
    text = f"the messages are {length}, and there is room for {room}"
    return RequestError(400, text, CONTEXT)
