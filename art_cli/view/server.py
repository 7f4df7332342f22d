"""The page on loopback. Its address holds a secret; who does not know that gets nothing.

Every answer is made from files at the moment it is asked for, in a thread; what has been read and
has not changed is not read again. The page asks every second whether anything has changed, which
costs a handful of calls of stat. Its scripts are compressed once, and a browser keeps them.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import secrets
import socket
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from aiohttp import web

from art_cli.errors import ArtError, PreflightError
from art_cli.view.collection import Collection
from art_cli.view.frame import TEXTS, as_json, live_page, live_policy

HOST = "127.0.0.1"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
KEPT = "private, max-age=31536000, immutable"  # Cache-Control of resources with a digest in the URL
SMALLEST = 2048  # bytes; compressing a smaller answer gains nothing


def listen(port: int) -> socket.socket:
    """Return a socket on loopback; port 0 takes any. Raises PreflightError."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(64)
    except OSError as e:
        found.close()
        if e.errno == errno.EADDRINUSE:
            raise PreflightError(
                f"port {port} is taken; give another one, or none: --port 0"
            ) from None
        raise PreflightError(f"cannot listen on port {port}: {e.strerror}") from None
    return found


async def serve(
    collection: Collection, listener: socket.socket, told: Callable[[str], None]
) -> None:
    """Serve until cancelled, and call `told` with the address once the server answers.

    Raise PreflightError without the extra `view`.
    """
    await asyncio.to_thread(_packed, "plotly.js")
    secret, port = secrets.token_urlsafe(24), listener.getsockname()[1]
    app = Pages(collection, secret, port).app()
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        told(f"http://{HOST}:{port}/{secret}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


class Pages:
    """The answers to requests."""

    def __init__(self, collection: Collection, secret: str, port: int) -> None:
        self._collection = collection
        self._secret = secret
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    def app(self) -> web.Application:
        """Return the application. A wrong Host, secret or method gets an empty 403 or 404."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/{secret}/", self._page)
        for name in TEXTS:
            app.router.add_get(f"/{{secret}}/{name}", self._text(name))
        for name in ("data", "index", "group", "search"):
            app.router.add_get(f"/{{secret}}/{name}", self._json(getattr(self, f"_{name}")))
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.headers.get("Host") not in self._hosts:  # another site's name for this address
            return web.Response(status=403, text="forbidden", headers=HEADERS)
        given = request.match_info.get("secret", "").encode()
        if not secrets.compare_digest(given, self._secret.encode()):
            return web.Response(status=404, text="not found", headers=HEADERS)
        try:
            response = await handler(request)
        except ArtError as e:
            response = web.json_response({"error": str(e)}, status=404)
        except (ValueError, KeyError):
            response = web.json_response({"error": "the page asked for no such thing"}, status=400)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers["Content-Security-Policy"] = live_policy()
        return response

    async def _page(self, request: web.Request) -> web.Response:
        return await _answer(request, "text/html", live_page())

    def _text(self, name: str) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            kind, make = TEXTS[name]
            response = await _answer(request, kind, make(), _packed(name))
            response.headers["Cache-Control"] = KEPT
            return response

        return answer

    def _json(self, make: Callable[[Any], Any]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            found = await asyncio.to_thread(make, request.query)
            if found is None:
                return web.Response(status=204)
            text = await asyncio.to_thread(as_json, found)
            return await _answer(request, "application/json", text)

        return answer

    def _data(self, query: Any) -> Any:
        return self._collection.news(query.get("seen", ""))

    def _index(self, query: Any) -> Any:
        return self._collection.run(query["run"]).index(int(query.get("since", 0)))

    def _group(self, query: Any) -> Any:
        shown = self._collection.run(query["run"])
        return shown.group(query["split"], int(query["step"]), int(query["group"]))

    def _search(self, query: Any) -> Any:
        return self._collection.run(query["run"]).search(query["text"])


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(TEXTS[name][1]().encode(), 6)


async def _answer(
    request: web.Request, kind: str, text: str, packed: bytes | None = None
) -> web.Response:
    body, headers = text.encode(), {}
    if len(body) > SMALLEST and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = packed or await asyncio.to_thread(gzip.compress, body, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers, content_type=kind, charset="utf-8")
