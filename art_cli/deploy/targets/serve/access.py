"""Access to a server that `art deploy --to serve` has started: for callers with its key.

A web page that somebody has open must not reach it either: not by a name that its owner points at
this machine (DNS rebinding), nor from another origin.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

KEY = "ART_SERVE_KEY"  # the variables that a server is started with
HOST = "ART_SERVE_HOST"
OPEN = ("/health",)  # paths that need no key

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Access:
    """The key that a request has to show."""

    key: str
    host: str  # that the server listens on

    @classmethod
    def from_environment(cls) -> Access:
        """Return what the process was started with; without a key it must not start."""
        return cls(os.environ[KEY], os.environ[HOST])

    def refusal(self, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and the reason for refusing a request; None: it may go on."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_own(host):
            return 403, f"the Host {host!r:.100} is not one of this server's"
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return 403, f"the Origin {origin!r:.100} is not this server's"
        if path not in OPEN and not self._has_key(headers):
            return 401, "the key is missing or wrong; send it as `Authorization: Bearer KEY`"
        return None

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        bearer = headers.get("authorization", "").encode(errors="replace")
        alone = headers.get("x-api-key", "").encode(errors="replace")  # as Anthropic's clients do
        key = self.key.encode()
        return hmac.compare_digest(bearer, b"Bearer " + key) or hmac.compare_digest(alone, key)

    def _is_own(self, header: str) -> bool:
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if name in ("localhost", self.host.lower()):
            return True
        local = is_loopback(self.host)
        try:  # a browser that was given an address has looked up no name
            return ipaddress.ip_address(name).is_loopback or not local
        except ValueError:
            return not local and name == socket.gethostname().lower()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return a refusal as OpenAI's clients read it, and Anthropic's."""
    code = "unauthorized" if status == 401 else "forbidden"
    error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
    return {"type": "error", "error": error}  # the first is for Anthropic's


def checked(access: Access) -> Any:
    """Return the middleware of an aiohttp server."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        refused = access.refusal(request.path, headers)
        if refused:
            return web.json_response(error_body(*refused), status=refused[0])
        return await handler(request)

    return check
