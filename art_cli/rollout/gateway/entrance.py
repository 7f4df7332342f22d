"""The address of the gateway, the public addresses of its episodes, and their key.

Only a service is given an address beyond this machine. TLS is left to a reverse proxy.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADERS = ("authorization", "x-api-key", "api-key")  # in which clients send the key
BEARER = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """The gateway's address. The default is a free port on loopback, protected by secret paths."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    public_url: str | None = None  # if it differs from the address that the gateway listens on
    needs_key: bool = False  # each request must send the key of its episode

    @classmethod
    def at(cls, bind: str, public_url: str | None) -> Entrance:
        """Return the entrance for services; `bind` is HOST:PORT."""
        host, _, port = bind.rpartition(":")
        return cls(host=host.strip("[]"), port=int(port), public_url=public_url, needs_key=True)

    def url(self, port: int) -> str:
        """Return the address that agents receive for a gateway that listens on `port`."""
        if self.public_url:
            return self.public_url.rstrip("/")
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets that a request must contain to reach an episode."""

    path: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # in the episode's URL
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def has_path(self, path: str) -> bool:
        """Return whether a request's path has the secret of the episode."""
        return _same(path, self.path)

    def has_key(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request has the key, in any header that clients of the APIs use."""
        shown = [headers.get(name, "").removeprefix(BEARER) for name in HEADERS]
        return any(_same(each, self.key) for each in shown)


def _same(shown: str, known: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), known.encode())
