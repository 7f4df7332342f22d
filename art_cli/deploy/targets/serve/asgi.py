"""The same check in front of vLLM, which guards only the paths below /v1 with its own key.

vllm ... --middleware art_cli.deploy.targets.serve.asgi.Checked
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from art_cli.deploy.targets.serve.access import Access, error_body

App = Callable[[Any, Any, Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Checked:
    """An ASGI application that hands on what `Access` lets through."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._access = Access.from_environment()

    async def __call__(
        self, scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]}
        refused = self._access.refusal(scope["path"], headers)
        if refused is None:
            return await self._app(scope, receive, send)
        if scope["type"] == "websocket":
            return await send({"type": "websocket.close", "code": 1008})
        kind = [(b"content-type", b"application/json")]
        body = json.dumps(error_body(*refused)).encode()
        await send({"type": "http.response.start", "status": refused[0], "headers": kind})
        await send({"type": "http.response.body", "body": body})
        return None
