"""Delivery of answers in any protocol, whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import web

from art_cli.rollout.gateway.apis.api import Api, Question, Responder
from art_cli.rollout.gateway.asked import Answered, RequestError
from art_cli.rollout.gateway.body import read_body
from art_cli.system.deadline import beside

HEARTBEAT = 10.0  # seconds between heartbeats in a stream
BODY_TIMEOUT = 30.0  # seconds for a body to arrive


async def ask(api: Api, request: web.Request, responder: Responder) -> web.StreamResponse:
    """Answer a request in its protocol. Raises RequestError."""
    question = await understood(api, request)
    if question.streamed:
        return await _stream(request, api, question, responder.complete(question.asked))
    return web.json_response(question.body(await responder.complete(question.asked)))


async def understood(api: Api, request: web.Request) -> Question:
    """Parse a request. Raises RequestError."""
    body = await timely_body(request)
    return await beside(len(body), api.read, body)


def refuse(api: Api, error: RequestError) -> web.Response:
    """Return an error response in the caller's protocol."""
    return web.json_response(api.error(error), status=error.status)


async def timely_body(request: web.Request) -> bytes:
    """Return the body of a request. Raises RequestError if it does not arrive in time."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await read_body(request)
    except TimeoutError:
        raise RequestError(408, f"the body was not there within {BODY_TIMEOUT:g} s") from None


async def _stream(
    request: web.Request, api: Api, question: Question, sampled: Coroutine[Any, Any, list[Answered]]
) -> web.StreamResponse:
    """Stream the answer as server-sent events.

    A turn is sampled whole, batched with turns of other episodes, and sent once it is complete.
    Until then, heartbeats keep the client from giving up.
    """
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
    except RequestError as e:  # too late for an HTTP status
        events = question.failed(e)
    await response.write(events.encode())
    await response.write_eof()
    return response
