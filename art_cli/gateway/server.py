"""The gateway: what a program believes to be OpenAI is the policy in training.

    http://127.0.0.1:PORT/e/EPISODE/SECRET/v1/chat/completions   /v1/models   /mcp

It listens on this machine only. An address says nothing to whoever does not know the secret of its
episode, and nothing any more once the episode is over.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web

from art_cli.episode import Episode
from art_cli.gateway import mcp
from art_cli.gateway.hosted import Answer, Hosted, Served
from art_cli.gateway.request import ChatRequest, RequestError
from art_cli.types import Message

MAX_BODY = 32 * 2**20  # bytes
BODY_TIMEOUT = 30.0  # seconds until a body must be there
HEAD_TIMEOUT = 30.0  # and the head of a request, or the next one on a connection
BACKLOG = 1024  # connections that wait to be accepted
HEARTBEAT = 10.0  # seconds between signs of life in a stream
PIECE = 24  # characters of a streamed piece

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
        app.router.add_post(f"{root}/v1/chat/completions", self._checked(_chat))
        app.router.add_get(f"{root}/v1/models", self._checked(_models))
        app.router.add_get(f"{root}/v1/models/{{model}}", self._checked(_model))
        app.router.add_post(f"{root}/mcp", self._checked(_mcp))
        quiet = logging.getLogger("art.gateway")  # a client's bad bytes are the client's
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet,
            keepalive_timeout=HEAD_TIMEOUT,
            lingering_time=1.0,  # for the rest of a body that nobody wants any more
            handler_cancellation=True,  # who hangs up wants no answer
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0, backlog=BACKLOG)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def _connection(self) -> asyncio.BaseProtocol:
        """aiohttp would wait for ever for the head of a connection's first request."""
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
        """The episode is over: its address is unknown from now on."""
        self._episodes.pop(hosted.id, None)
        hosted.close()

    async def close(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
        if self._runner:
            await self._runner.cleanup()

    def _checked(self, reply: Reply) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            self._heard.add(request.protocol)
            hosted = self._episodes.get(request.match_info["episode"])
            try:
                if hosted is None:
                    raise RequestError(404, "there is no such episode", "not_found")
                if not hosted.is_secret(request.match_info["secret"]):
                    raise RequestError(401, "the secret is wrong", "unauthorized")
                return await reply(hosted, request)
            except RequestError as e:
                return web.json_response(e.body(), status=e.status)
            except ConnectionError:  # who hangs up is not told
                raise
            except Exception as e:  # ours: it is not the agent that failed
                if hosted:
                    hosted.fail(e)
                error = RequestError(500, f"the gateway failed: {e!r}", "gateway")
                return web.json_response(error.body(), status=500)

        return handle


async def _chat(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    asked = ChatRequest.read(await _body(request))
    head = {"id": f"chatcmpl-{hosted.id}-{hosted.num_calls}", "created": int(time.time())}
    head["model"] = asked.model
    if not asked.stream:
        answer = await hosted.complete(asked)
        return web.json_response(head | _completion(answer, asked))
    return await _stream(hosted, request, asked, head)


async def _stream(
    hosted: Hosted, request: web.Request, asked: ChatRequest, head: dict[str, Any]
) -> web.StreamResponse:
    """Server-sent events. A turn is sampled as a whole, in a batch with those of other episodes,
    and streamed when it is there; until then there are comments, so that nobody gives up."""
    task = asyncio.ensure_future(hosted.complete(asked))
    try:
        await asyncio.wait({task}, timeout=HEARTBEAT)
        if task.done() and task.exception():
            await task
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        while not task.done():
            await response.write(b": still sampling\n\n")
            await asyncio.wait({task}, timeout=HEARTBEAT)
    except BaseException:
        task.cancel()
        raise
    try:
        events = [
            head | {"object": "chat.completion.chunk"} | c for c in _chunks(await task, asked)
        ]
    except RequestError as e:  # too late for a status
        events = [e.body()]
    lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    await response.write(f"{lines}data: [DONE]\n\n".encode())
    await response.write_eof()
    return response


async def _models(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    return web.json_response({"object": "list", "data": [_described("policy")]})


async def _model(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    return web.json_response(_described(request.match_info["model"]))


async def _mcp(hosted: Hosted, request: web.Request) -> web.StreamResponse:
    answer = await mcp.answer(hosted, await _body(request))
    return web.Response(status=202) if answer is None else web.json_response(answer)


async def _body(request: web.Request) -> bytes:
    try:
        return await asyncio.wait_for(request.read(), BODY_TIMEOUT)
    except TimeoutError:
        raise RequestError(408, f"the body was not there within {BODY_TIMEOUT:g} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise RequestError(413, f"the body is larger than {MAX_BODY} bytes") from None


def _described(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": 0, "owned_by": "art"}


def _completion(answer: Answer, asked: ChatRequest) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": answer.message,
        "finish_reason": answer.finish_reason,
        "logprobs": _logprobs(answer) if asked.logprobs else None,
    }
    return {"object": "chat.completion", "choices": [choice], "usage": _usage(answer)}


def _usage(answer: Answer) -> dict[str, int]:
    sampled = len(answer.completion.token_ids)
    return {
        "prompt_tokens": answer.num_prompt,
        "completion_tokens": sampled,
        "total_tokens": answer.num_prompt + sampled,
    }


def _logprobs(answer: Answer) -> dict[str, Any]:
    content = [
        {"token": t, "logprob": p, "bytes": list(t.encode()), "top_logprobs": []}
        for t, p in zip(answer.tokens, answer.completion.logprobs, strict=True)
    ]
    return {"content": content}


def _chunks(answer: Answer, asked: ChatRequest) -> Iterator[dict[str, Any]]:
    """A whole answer in the pieces of a stream."""

    def chunk(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": None} | more]}

    message = answer.message
    yield chunk({"role": "assistant", "content": ""})
    for key in ("reasoning_content", "content"):
        for piece in _pieces(message.get(key) or ""):
            yield chunk({key: piece})
    for index, call in enumerate(message.get("tool_calls", [])):
        function = call["function"] | {"arguments": ""}
        yield chunk({"tool_calls": [call | {"index": index, "function": function}]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    logprobs = {"logprobs": _logprobs(answer)} if asked.logprobs else {}
    yield chunk({}, finish_reason=answer.finish_reason, **logprobs)
    if (asked.stream_options or {}).get("include_usage"):
        yield {"choices": [], "usage": _usage(answer)}


def _pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]
