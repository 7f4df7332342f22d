"""Delivery of answers to the client. An answer that did not reach it is not trained on."""

from __future__ import annotations

from collections.abc import Awaitable

from aiohttp import web

from art_cli.rollout.gateway.asked import Answered, Asked
from art_cli.rollout.gateway.hosted_episode import Hosted


class Delivery:
    """Implements Responder for one request to an episode."""

    def __init__(self, hosted: Hosted, request: web.Request) -> None:
        self._hosted = hosted
        self._request = request
        self._answers: list[Answered] = []

    @property
    def models(self) -> list[str]:
        return self._hosted.models

    @property
    def max_model_len(self) -> int:
        return self._hosted.max_model_len

    async def complete(self, asked: Asked) -> list[Answered]:
        self._hosted.unknown_fields.update(asked.unknown)
        answers = await self._hosted.complete(asked)
        self._answers += answers
        return answers

    async def count(self, asked: Asked) -> int:
        return await self._hosted.count(asked)

    async def of(self, reply: Awaitable[web.StreamResponse]) -> web.StreamResponse:
        """Write a reply. If the client has disconnected, take its answers back."""
        request = self._request
        try:
            response = await reply
            if isinstance(response, web.Response) and response.status >= 400:
                self._hosted.refusal = response.text or ""
            if not response.prepared:
                await response.prepare(request)
                await response.write_eof()
        except BaseException:
            self._hosted.take_back(self._answers)
            raise
        if request.transport is None or request.transport.is_closing():
            self._hosted.take_back(self._answers)
        return response
