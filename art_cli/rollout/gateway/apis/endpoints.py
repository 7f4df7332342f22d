"""The endpoints of one caller for every protocol, below any base address.

.../v1/chat/completions   .../chat/completions/   ...//v1/chat/completions
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from art_cli.rollout.gateway.apis.api import Api, Responder
from art_cli.rollout.gateway.apis.chat import ChatApi
from art_cli.rollout.gateway.apis.completions import CompletionsApi
from art_cli.rollout.gateway.apis.messages.api import MessagesApi
from art_cli.rollout.gateway.apis.responses.api import ResponsesApi
from art_cli.rollout.gateway.apis.responses.store import ResponseStore
from art_cli.rollout.gateway.apis.serving import ask, refuse, understood
from art_cli.rollout.gateway.asked import RequestError

Answering = Callable[[web.Request, Responder], Awaitable[web.StreamResponse]]


class Endpoints:
    """Answers the requests of one caller. Stored responses are visible to that caller only."""

    def __init__(self, *, drops_hosted: bool = False) -> None:
        """`drops_hosted` leaves out tools that only a vendor runs. Otherwise they are refused."""
        self._stored = ResponseStore()
        self._chat, messages = ChatApi(), MessagesApi(drops_hosted=drops_hosted)
        responses = ResponsesApi(self._stored, drops_hosted=drops_hosted)
        self._asking: dict[str, Api] = {
            "chat/completions": self._chat,
            "responses": responses,
            "messages": messages,
            "completions": CompletionsApi(),
        }
        self._counting: dict[str, Api] = {
            "responses/input_tokens": responses,
            "messages/count_tokens": MessagesApi(counts=True, drops_hosted=drops_hosted),
        }

    async def answer(
        self, request: web.Request, path: str, responder: Responder
    ) -> web.StreamResponse:
        """Answer a request to `path`, which is relative to the base address."""
        words = words_of(path)
        try:
            return await self._reply(request, words)(request, responder)
        except RequestError as e:
            return refuse(self.api_of(words), e)

    def api_of(self, words: list[str]) -> Api:
        """Return the protocol of a path, given its segments."""
        return self._asking.get(words[0] if words else "", self._chat)

    def _reply(self, request: web.Request, words: list[str]) -> Answering:
        asked = request.method, "/".join(words)
        if request.method == "POST" and asked[1] in self._asking:
            api = self._asking[asked[1]]
            return lambda request, responder: ask(api, request, responder)
        if request.method == "POST" and asked[1] in self._counting:
            api = self._counting[asked[1]]
            return lambda request, responder: _count(api, request, responder)
        if words[:1] == ["models"] and request.method == "GET":
            return lambda _, responder: _models(responder, "/".join(words[1:]))
        if words[:1] == ["responses"] and len(words) == 2 and request.method in ("GET", "DELETE"):
            return lambda request, _: self._known_response(request, words[1])
        if request.headers.get("Upgrade", "").lower() == "websocket":
            # On this status, Codex switches to HTTP at once.
            raise RequestError(
                426, "WebSockets are not offered here; send each request by HTTP POST"
            )
        known = ", ".join(f"POST /v1/{path}" for path in self._asking)
        raise RequestError(
            404,
            f"there is no {asked[0]} /{asked[1]:.100} here; there are {known}, GET /v1/models",
            "not_found",
        )

    async def _known_response(self, request: web.Request, id: str) -> web.StreamResponse:
        body = self._stored.get(id).body
        if request.method == "GET":
            return web.json_response(body)
        self._stored.drop(id)
        return web.json_response({"id": id, "object": "response", "deleted": True})


def words_of(path: str) -> list[str]:
    """Return the segments of a path without `v1`: clients may add it to a base that has it."""
    words = [word for word in path.split("/") if word]
    while words[:1] == ["v1"]:
        words = words[1:]
    return words


async def _count(api: Api, request: web.Request, responder: Responder) -> web.StreamResponse:
    question = await understood(api, request)
    num = await responder.count(question.asked)
    return web.json_response({"object": "response.input_tokens", "input_tokens": num})


async def _models(responder: Responder, name: str) -> web.StreamResponse:
    """List the models in the form of OpenAI's and Anthropic's clients. Any name is accepted."""
    if name:
        return web.json_response(_described(name, responder))
    models = [_described(model, responder) for model in responder.models]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"], "has_more": False}
    return web.json_response({"object": "list", "data": models, **ends})


def _described(model: str, responder: Responder) -> dict[str, Any]:
    openais = {"object": "model", "created": 0, "owned_by": "art"}
    anthropics = {
        "type": "model",
        "display_name": model,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }
    room = {
        "max_model_len": responder.max_model_len,
        "context_length": responder.max_model_len,
        "max_input_tokens": responder.max_model_len - 1,
    }
    return {"id": model, **openais, **anthropics, **room}
