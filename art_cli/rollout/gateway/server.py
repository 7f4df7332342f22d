"""The gateway: an HTTP server that programs use like OpenAI or Anthropic, answered by the policy.

    http://127.0.0.1:PORT/e/EPISODE/SECRET/v1/chat/completions   /v1/models   /mcp   /end

It listens on this machine only, or for a service at `agent.bind`, and then requests must also send
the key of their episode. Requests without the secret of an episode are refused, and so are all
requests once the episode is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from aiohttp import web

from art_cli.errors import PreflightError
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway import mcp
from art_cli.rollout.gateway.apis.endpoints import Endpoints, words_of
from art_cli.rollout.gateway.apis.fields import NAMED, unknown_text
from art_cli.rollout.gateway.apis.serving import refuse, timely_body
from art_cli.rollout.gateway.asked import RequestError
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.delivery import Delivery
from art_cli.rollout.gateway.end import AgentEnd, not_counted
from art_cli.rollout.gateway.entrance import Entrance, Secrets
from art_cli.rollout.gateway.hosted_episode import Hosted
from art_cli.rollout.gateway.served import Served
from art_cli.system.deadline import beside
from art_cli.system.progress import silent
from art_cli.types import Message

HEAD_TIMEOUT = 30.0  # seconds for the head of a request, or until the next request of a connection
BACKLOG = 1024  # connections that wait to be accepted
REMEMBERED = 4096  # finished episodes whose agents may still report their end


class Gateway:
    """Serves the open episodes."""

    def __init__(
        self,
        served: Served,
        entrance: Entrance | None = None,
        *,
        drops_hosted: bool = False,
        say: Callable[[str], None] = silent,
    ) -> None:
        """`say` warns of request fields that have no effect, once for each field."""
        self.served = served
        self._say = say
        self._warned: set[str] = set()
        self._drops_hosted = drops_hosted
        self._entrance = entrance or Entrance()
        self._episodes: dict[str, tuple[Hosted, Endpoints]] = {}
        self._nowhere = Endpoints()
        # The secrets of finished episodes, and whether their agents reported the end.
        self._over: OrderedDict[str, tuple[Secrets, bool]] = OrderedDict()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._heard: set[object] = set()  # new connections that have sent a request
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises PreflightError if the address cannot be used."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/e/{episode}/{secret}/{path:.*}", self._answer)
        quiet = logging.getLogger("art.gateway")  # invalid bytes are the client's fault
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet,
            keepalive_timeout=HEAD_TIMEOUT,
            auto_decompress=False,  # read_body() does, up to a limit
            lingering_time=1.0,  # for the rest of a body that is no longer needed
            handler_cancellation=True,  # a client that disconnects needs no answer
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        at = self._entrance
        try:
            self._server = await loop.create_server(
                self._connection, at.host, at.port, backlog=BACKLOG
            )
        except OSError as e:
            raise PreflightError(
                f"agent.bind: cannot listen on {at.host}:{at.port}: {e.strerror}; name an address "
                "of this machine and a port that is free"
            ) from None
        self.url = at.url(self._server.sockets[0].getsockname()[1])

    def _connection(self) -> asyncio.BaseProtocol:
        """Give a connection's first request a deadline: aiohttp would wait indefinitely."""
        assert self._runner and self._runner.server
        handler = self._runner.server()

        def drop_if_silent() -> None:
            if handler not in self._heard:
                handler.force_close()
            self._heard.discard(handler)

        asyncio.get_running_loop().call_later(HEAD_TIMEOUT, drop_if_silent)
        return handler

    def open(
        self, episode: Episode, opening: list[Message], seed: int, served: Served | None = None
    ) -> Hosted:
        """Host an episode until `leave`. `served` replaces the gateway's own for this episode."""
        hosted = Hosted(served or self.served, episode, opening, seed)
        self._episodes[hosted.id] = hosted, Endpoints(drops_hosted=self._drops_hosted)
        return hosted

    def leave(self, hosted: Hosted) -> None:
        """Forget a finished episode: its address is unknown from now on."""
        self._episodes.pop(hosted.id, None)
        new = {k: n for k, n in hosted.unknown_fields.items() if k not in self._warned}
        if new and len(self._warned) < NAMED:
            self._warned |= new.keys()
            self._say(f"warning: {unknown_text(new)}")
        if self._entrance.needs_key:
            self._over[hosted.id] = hosted.secrets, hosted.told.done()
            if len(self._over) > REMEMBERED:
                self._over.popitem(last=False)
        hosted.close()

    def _asked_for(self, request: web.Request) -> tuple[Hosted, Endpoints]:
        """Return the episode of a request. Raises RequestError if access is refused."""
        name, headers = request.match_info["episode"], request.headers
        found = self._episodes.get(name)
        known, told = (found[0].secrets, False) if found else self._over.get(name, (None, False))
        if known is None or not known.has_path(request.match_info["secret"]):
            # The same answer in both cases, so that guessing does not reveal which episodes exist.
            raise RequestError(404, "there is no such episode", "not_found")
        if self._entrance.needs_key and not known.has_key(headers):
            text = "the key is missing or wrong; send the episode's api_key as a bearer token"
            raise RequestError(401, text, "invalid_api_key")
        if found is None:
            if words_of(request.match_info["path"]) == ["end"]:
                raise not_counted(told)
            raise RequestError(404, "the episode is over", "not_found")
        return found

    async def close(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
        if self._runner:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self._heard.add(request.protocol)
        path = request.match_info["path"]
        words = words_of(path)
        try:
            hosted, endpoints = self._asked_for(request)
        except RequestError as e:
            return refuse(self._nowhere.api_of(words), e)
        hosted.num_requests += 1
        try:
            if words == ["mcp"]:
                return await _mcp(hosted, request)
            if request.method == "POST" and words == ["end"]:
                return await _end(hosted, request)
            delivery = Delivery(hosted, request)
            return await delivery.of(endpoints.answer(request, path, delivery))
        except RequestError as e:
            return refuse(endpoints.api_of(words), e)
        except ConnectionError:  # the client has disconnected
            raise
        except Exception as e:  # a failure of the gateway, not of the agent
            hosted.fail(e)
            error = RequestError(500, f"the gateway failed: {e!r}", "gateway")
            return refuse(endpoints.api_of(words), error)


async def _mcp(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    if request.method != "POST":  # server-side streams and sessions are not offered
        return web.Response(status=405, headers={"Allow": "POST"})
    answer = await mcp.answer(hosted, await timely_body(request))
    return web.Response(status=202) if answer is None else web.json_response(answer)


async def _end(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    body = await timely_body(request)
    hosted.tell(await beside(len(body), AgentEnd.read, body))
    return web.json_response({"counted": True})
