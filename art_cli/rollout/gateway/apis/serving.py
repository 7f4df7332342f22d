"""Answers to requests of any protocol: at once, or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from art_cli.rollout.gateway.apis.api import Api, Question, Responder
from art_cli.rollout.gateway.asked import Answered, RequestError
from art_cli.rollout.gateway.body import read_body
from art_cli.system.deadline import beside

HEARTBEAT = 10.0  # seconds between signs of life in a stream
BODY_TIMEOUT = 30.0  # seconds until a body must be there


async def ask(api: Api, request: web.Request, responder: Responder) -> web.StreamResponse:
    """Answer a request in its protocol. Raises RequestError."""
    question = await understood(api, request)
    if question.streamed:
        return await _stream(request, api, question, responder.complete(question.asked))
    return web.json_response(question.body(await responder.complete(question.asked)))


async def understood(api: Api, request: web.Request) -> Question:
    """Return what a request asks. Raises RequestError."""
    body = await timely_body(request)
    return await beside(len(body), api.read, body)


def refuse(api: Api, error: RequestError) -> web.Response:
    """Return a refusal in the caller's protocol."""
    return web.json_response(api.error(error), status=error.status)


async def timely_body(request: web.Request) -> bytes:
    """Return the body of a request. Raises RequestError where it does not come."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await read_body(request)
    except TimeoutError:
        raise RequestError(408, f"the body was not there within {BODY_TIMEOUT:g} s") from None


async def _stream(
    request: web.Request, api: Api, question: Question, sampled: Coroutine[Any, Any, list[Answered]]
) -> web.StreamResponse:
    """Server-sent events. A turn is sampled as a whole, in a batch with those of other episodes,
    and streamed when it is there; until then there are signs of life, so that nobody gives up."""
    task = asyncio.ensure_future(sampled)
    try:
        await asyncio.wait({task}, timeout=HEARTBEAT)
        if task.done() and task.exception():
            await task
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        while not task.done():
            await response.write(api.heartbeat.encode())
            await asyncio.wait({task}, timeout=HEARTBEAT)
    except BaseException:
        task.cancel()
        raise
    try:
        events = "".join(question.events(await task))
    except RequestError as e:  # too late for a status
        events = question.failed(e)
    await response.write(events.encode())
    await response.write_eof()
    return response
