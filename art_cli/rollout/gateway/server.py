"""The gateway: what a program believes to be OpenAI is the policy in training.

    http://127.0.0.1:PORT/e/EPISODE/SECRET/v1/chat/completions   /v1/models   /mcp

It listens on this machine only. An address says nothing to whoever does not know the secret of its
episode, and nothing any more once the episode is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway import mcp
from art_cli.rollout.gateway.apis.api import Api
from art_cli.rollout.gateway.apis.chat import ChatApi
from art_cli.rollout.gateway.apis.serving import refuse, serve, timely_body
from art_cli.rollout.gateway.asked import Answered, Asked, RequestError
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.hosted_episode import Hosted, Served
from art_cli.types import Message

HEAD_TIMEOUT = 30.0  # seconds for the head of a request, or the next one on a connection
BACKLOG = 1024  # connections that wait to be accepted

Reply = Callable[[Hosted, web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """Serves the episodes that are open."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._episodes: dict[str, Hosted] = {}
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._heard: set[object] = set()  # young connections that have asked for something
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=MAX_BODY)
        root = "/e/{episode}/{secret}"
        chat = ChatApi()
        app.router.add_post(f"{root}/v1/chat/completions", self._checked(_asking(chat), chat))
        app.router.add_get(f"{root}/v1/models", self._checked(_models, chat))
        app.router.add_get(f"{root}/v1/models/{{model}}", self._checked(_model, chat))
        app.router.add_post(f"{root}/mcp", self._checked(_mcp, chat))
        quiet = logging.getLogger("art.gateway")  # a client's bad bytes are the client's
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet,
            keepalive_timeout=HEAD_TIMEOUT,
            auto_decompress=False,  # read_body() does, up to a limit
            lingering_time=1.0,  # for the rest of a body that nobody wants any more
            handler_cancellation=True,  # who hangs up wants no answer
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0, backlog=BACKLOG)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _connection(self) -> asyncio.BaseProtocol:
        """Give a connection's first request a deadline: aiohttp would wait for it for ever."""
        assert self._runner and self._runner.server
        handler = self._runner.server()

        def drop_if_silent() -> None:
            if handler not in self._heard:
                handler.force_close()
            self._heard.discard(handler)

        asyncio.get_running_loop().call_later(HEAD_TIMEOUT, drop_if_silent)
        return handler

    def open(self, episode: Episode, opening: list[Message], seed: int) -> Hosted:
        """Host an episode until `leave`."""
        hosted = Hosted(self._served, episode, opening, seed)
        self._episodes[hosted.id] = hosted
        return hosted

    def leave(self, hosted: Hosted) -> None:
        """Forget an episode that is over: its address is unknown from now on."""
        self._episodes.pop(hosted.id, None)
        hosted.close()

    async def close(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
        if self._runner:
            await self._runner.cleanup()

    def _checked(
        self, reply: Reply, api: Api
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._heard.add(request.protocol)
            hosted = self._episodes.get(request.match_info["episode"])
            if hosted is None or not hosted.is_secret(request.match_info["secret"]):
                # One answer to both: who guesses does not learn which episodes there are.
                error = RequestError(404, "there is no such episode", "not_found")
                return refuse(api, error)
            try:
                return await reply(hosted, request)
            except RequestError as e:
                return refuse(api, e)
            except ConnectionError:  # who hangs up is not told
                raise
            except Exception as e:  # ours: it is not the agent that failed
                hosted.fail(e)
                error = RequestError(500, f"the gateway failed: {e!r}", "gateway")
                return refuse(api, error)

        return handle


def _asking(api: Api) -> Reply:
    async def ask(hosted: Hosted, request: web.Request) -> web.StreamResponse:
        given: list[Answered] = []

        async def complete(asked: Asked) -> list[Answered]:
            answers = await hosted.complete(asked)
            given.extend(answers)
            return answers

        try:
            response = await serve(api, request, complete)
            if not response.prepared:
                await response.prepare(request)
                await response.write_eof()
        except BaseException:  # the client has gone
            hosted.take_back(given)
            raise
        if request.transport is None or request.transport.is_closing():
            hosted.take_back(given)
        return response

    return ask


async def _models(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": [_described("policy", hosted)]})


async def _model(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    return web.json_response(_described(request.match_info["model"], hosted))


async def _mcp(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    answer = await mcp.answer(hosted, await timely_body(request))
    return web.Response(status=202) if answer is None else web.json_response(answer)


def _described(model: str, hosted: Hosted) -> dict[str, Any]:
    room = {
        "max_model_len": hosted.room,
        "context_length": hosted.room,
    }  # vLLM's word, OpenRouter's
    return {"id": model, "object": "model", "created": 0, "owned_by": "art"} | room
