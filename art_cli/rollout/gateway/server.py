"""The gateway: what a program believes to be OpenAI or Anthropic is the policy in training.

    http://127.0.0.1:PORT/e/EPISODE/SECRET/v1/chat/completions   /v1/models   /mcp

It listens on this machine only. An address says nothing to whoever does not know the secret of its
episode, and nothing any more once the episode is over.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway import mcp
from art_cli.rollout.gateway.apis.endpoints import Endpoints, words_of
from art_cli.rollout.gateway.apis.openai_parts import error_body
from art_cli.rollout.gateway.apis.serving import refuse, timely_body
from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.hosted_episode import Hosted, Served
from art_cli.types import Message

HEAD_TIMEOUT = 30.0  # seconds for the head of a request, or the next one on a connection
BACKLOG = 1024  # connections that wait to be accepted


class Gateway:
    """Serves the episodes that are open."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._episodes: dict[str, tuple[Hosted, Endpoints]] = {}
        self._nowhere = Endpoints()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._heard: set[object] = set()  # young connections that have asked for something
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/e/{episode}/{secret}/{path:.*}", self._answer)
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
        self._episodes[hosted.id] = hosted, Endpoints()
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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._heard.add(request.protocol)
        path = request.match_info["path"]
        found = self._episodes.get(request.match_info["episode"])
        if found is None or not found[0].is_secret(request.match_info["secret"]):
            # One answer to both: who guesses does not learn which episodes there are.
            error = RequestError(404, "there is no such episode", "not_found")
            return refuse(self._nowhere.api_of(words_of(path)), error)
        hosted, endpoints = found
        try:
            if words_of(path) == ["mcp"] and request.method == "POST":
                return await _mcp(hosted, request)
            return await endpoints.answer(request, path, hosted)
        except ConnectionError:  # who hangs up is not told
            raise
        except Exception as e:  # ours: it is not the agent that failed
            hosted.fail(e)
            error = RequestError(500, f"the gateway failed: {e!r}", "gateway")
            return refuse(endpoints.api_of(words_of(path)), error)


async def _mcp(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    try:
        answer = await mcp.answer(hosted, await timely_body(request))
    except RequestError as e:
        return web.json_response(error_body(e), status=e.status)
    return web.Response(status=202) if answer is None else web.json_response(answer)
