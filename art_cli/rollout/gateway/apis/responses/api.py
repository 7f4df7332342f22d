"""OpenAI's responses API: POST /v1/responses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from art_cli.chat.openai_format import Reading
from art_cli.rollout.gateway.apis.bodies import Bodies
from art_cli.rollout.gateway.apis.continued import Continued
from art_cli.rollout.gateway.apis.fields import check_fields
from art_cli.rollout.gateway.apis.openai_parts import error_body
from art_cli.rollout.gateway.apis.request_body import (
    MAX_MESSAGES,
    MAX_TOOLS,
    MAX_TOP_LOGPROBS,
    conversation,
    copied,
    readings,
)
from art_cli.rollout.gateway.apis.responses.events import event, events_of
from art_cli.rollout.gateway.apis.responses.items import (
    add_item,
    chat_messages,
    text_of,
)
from art_cli.rollout.gateway.apis.responses.output import finished, head, output_of
from art_cli.rollout.gateway.apis.responses.store import ResponseStore, StoredResponse
from art_cli.rollout.gateway.apis.responses.tools import (
    Chosen,
    ClientTool,
    RequestTool,
    added_tools,
    client_tools,
    named,
)
from art_cli.rollout.gateway.apis.tool_choice import Mode, Offer, offer
from art_cli.rollout.gateway.asked import Answered, Asked, RequestError

LOGPROBS = "message.output_text.logprobs"  # the value of `include` that asks for them


class _Allowed(BaseModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[Chosen]


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


class _Text(BaseModel):
    format: _Format | None = None


@dataclass(frozen=True, slots=True)
class KnownItems:
    """The items of a caller that were read before."""

    items: Continued[list[dict[str, Any]]] = field(
        default_factory=lambda: Continued(copied, add_item)
    )
    messages: Continued[Reading] = field(default_factory=readings)


@dataclass(frozen=True, slots=True)
class _Tools:
    added: dict[str, RequestTool]  # tools that items add, by their place in the request
    by_name: dict[str, ClientTool]  # by the name that the policy sees
    offer: Offer


class ResponsesRequest(BaseModel):
    """The fields that have an effect; fields.py lists the others."""

    model_config = ConfigDict(extra="allow")
    _known: _Tools | None = PrivateAttr(default=None)
    model: str = "policy"
    input: str | Annotated[list[dict[str, Any]], Field(max_length=MAX_MESSAGES)] | None = None
    instructions: str | list[dict[str, Any]] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: Annotated[list[RequestTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Mode | _Allowed | Chosen | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    include: list[str] | None = None
    stream: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    metadata: dict[str, str] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items of the request's own input, without those of earlier responses."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input or []

    @cached_property
    def instructed(self) -> list[dict[str, Any]]:
        """The request's instructions as messages. Raises RequestError."""
        given = self.instructions or []
        text = given if isinstance(given, str) else chat_messages(given)
        texts = [text] if isinstance(text, str) else [text_of(m["content"]) for m in text]
        return [{"role": "system", "content": t} for t in texts]

    def asked(
        self, items: list[dict[str, Any]], size: int, known: KnownItems, offered: Offer
    ) -> Asked:
        """Convert the request, whose history is `items`, to `Asked`. Raises RequestError."""
        unknown = check_fields(self, "responses")
        said = [*self.instructed, *known.items.read(items, [])]
        if not said:
            raise RequestError(400, "input: Field required")
        messages, prefill = conversation(said, "input", known.messages)
        return Asked(
            messages=messages,
            size=size,
            tools=offered.tools,
            must_call=offered.must_call,
            forced_tool=offered.forced,
            parallel=self.parallel_tool_calls is not False,
            prefill=prefill,
            limit=self.max_output_tokens,
            logprobs=LOGPROBS in (self.include or []) or bool(self.top_logprobs),
            top_logprobs=self.top_logprobs or 0,
            response_schema=self._schema(),
            model=self.model,
            unknown=unknown,
            temperature=self.temperature,
            top_p=self.top_p,
        )

    def known_tools(self, items: list[dict[str, Any]], *, drops_hosted: bool) -> _Tools:
        """Return the request's own tools and those that its items add.

        `drops_hosted` leaves out tools that only OpenAI runs. Raises RequestError.
        """
        added = added_tools(items)
        if self._known is None or self._known.added != added:
            given = {f"tools.{n}": tool for n, tool in enumerate(self.tools or [])}
            by_name = client_tools(given | added, drops_hosted=drops_hosted)
            self._known = _Tools(added, by_name, self._offer(by_name))
        return self._known

    def _offer(self, by_name: dict[str, ClientTool]) -> Offer:
        tools = [tool.function() for tool in by_name.values()]
        choice = self.tool_choice or "auto"
        if isinstance(choice, Chosen):
            return offer(tools, "required", forced=named(choice, by_name))
        if isinstance(choice, _Allowed):
            return offer(tools, choice.mode, only=[named(each, by_name) for each in choice.tools])
        return offer(tools, choice)

    def _schema(self) -> dict[str, Any] | None:
        wanted = self.text.format if self.text else None
        if wanted is None or wanted.type == "text":
            return None
        return {"type": "object"} if wanted.type == "json_object" else wanted.schema_ or {}


class ResponsesApi:
    """Implements Api."""

    heartbeat = ": still sampling\n\n"

    def __init__(self, store: ResponseStore, *, drops_hosted: bool = False) -> None:
        self._store = store
        self._drops_hosted = drops_hosted
        self._bodies = Bodies(ResponsesRequest, "input")
        self._known = KnownItems()

    def read(self, body: bytes) -> ResponsesQuestion:
        request = self._bodies.read(body)
        before = request.previous_response_id
        items = list(self._store.get(before).items) if before else []
        items += self._store.resolved(request.items)
        if len(items) > MAX_MESSAGES:
            raise RequestError(400, f"input: more than {MAX_MESSAGES} items")
        tools = request.known_tools(items, drops_hosted=self._drops_hosted)
        asked = request.asked(items, len(body), self._known, tools.offer)
        return ResponsesQuestion(request, items, tools.by_name, asked, self._store)

    def error(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)


@dataclass(frozen=True)
class ResponsesQuestion:
    """Implements Question."""

    request: ResponsesRequest
    items: list[dict[str, Any]]  # the whole history before the answer
    tools: dict[str, ClientTool]
    asked: Asked
    store: ResponseStore

    @property
    def streamed(self) -> bool:
        return bool(self.request.stream)

    @cached_property
    def _head(self) -> dict[str, Any]:
        return head(self.request.model_dump(mode="json", by_alias=True, exclude={"input"}))

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        include, reasoning = self.request.include or [], self.request.reasoning or {}
        output = output_of(
            answers[0],
            self.asked,
            self.tools,
            sealed="reasoning.encrypted_content" in include,
            summed_up=bool(reasoning.get("summary") or reasoning.get("generate_summary")),
        )
        body = finished(self._head, output, answers[0])
        if self.request.store is not False:
            self._keep(body, output)
        return body

    def _keep(self, body: dict[str, Any], output: list[dict[str, Any]]) -> None:
        size = self.asked.size + sum(len(str(item)) for item in output)
        self.store.add(StoredResponse(body, [*self.items, *output], size))

    def events(self, answers: list[Answered]) -> Iterator[str]:
        return events_of(self._head, self.body(answers))

    def failed(self, error: RequestError) -> str:
        why = {"code": "server_error", "message": str(error)}
        failed = self._head | {"status": "failed", "error": why}
        return event(0, "response.failed", {"response": failed})
