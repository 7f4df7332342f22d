"""The page on loopback. Its address holds a secret; who does not know that gets nothing.

Every answer is made from files at the moment it is asked for, in a thread. The page asks every
half a second whether anything has changed, which costs a handful of calls of stat.
"""

from __future__ import annotations

import asyncio
import errno
import gzip
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from art_cli.errors import ArtError, PreflightError
from art_cli.view.collection import Collection
from art_cli.view.frame import as_json, live_page, live_policy, plotly, script, style

HOST = "127.0.0.1"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SMALLEST = 2048  # bytes; below, compressing an answer gains nothing


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
    """Serve until it is cancelled; `told` gets the address once it answers.

    Raises PreflightError without the extra `view`.
    """
    await asyncio.to_thread(plotly)
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
    """What is answered to whom."""

    def __init__(self, collection: Collection, secret: str, port: int) -> None:
        self._collection = collection
        self._secret = secret
        self._hosts = {f"{HOST}:{port}", f"localhost:{port}"}

    def app(self) -> web.Application:
        """Return the application; a wrong Host, secret or method gets 403 or 404 and no word."""
        app = web.Application(middlewares=[self._guard])
        texts = {
            "": ("text/html", live_page),
            "style.css": ("text/css", style),
            "app.js": ("text/javascript", script),
            "plotly.js": ("text/javascript", plotly),
        }
        for name, (kind, make) in texts.items():
            app.router.add_get(f"/{{secret}}/{name}", self._text(kind, make))
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
        response.headers.update(HEADERS)
        response.headers["Content-Security-Policy"] = live_policy()
        return response

    def _text(self, kind: str, make: Callable[[], str]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            return await _answer(request, kind, await asyncio.to_thread(make))

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
        """Return all runs in numbers; None where nothing changed since `seen`."""
        stamp = self._collection.stamp()
        if query.get("seen") == stamp:
            return None
        return {"stamp": stamp, "runs": [shown.overview() for shown in self._collection.runs()]}

    def _index(self, query: Any) -> Any:
        return self._collection.run(query["run"]).index(int(query.get("since", 0)))

    def _group(self, query: Any) -> Any:
        shown = self._collection.run(query["run"])
        return shown.group(query["split"], int(query["step"]), int(query["group"]))

    def _search(self, query: Any) -> Any:
        return self._collection.run(query["run"]).search(query["text"])


async def _answer(request: web.Request, kind: str, text: str) -> web.Response:
    body, headers = text.encode(), {}
    if len(body) > SMALLEST and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers=headers, content_type=kind, charset="utf-8")
