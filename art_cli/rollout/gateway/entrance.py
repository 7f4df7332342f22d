"""The address of a gateway, the addresses of its episodes from outside, and their key.

Only a service is told of an address beyond this machine. TLS is a reverse proxy's.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

HEADERS = ("authorization", "x-api-key", "api-key")  # in which clients show a key
BEARER = "Bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """By default, a free port that only this machine reaches: the address is the secret."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: a free one
    public_url: str | None = None  # as others see it, where that is not what it listens on
    needs_key: bool = False  # each request has to show the key of its episode

    @classmethod
    def at(cls, bind: str, public_url: str | None) -> Entrance:
        """Return where a service reaches its episodes; `bind` is HOST:PORT."""
        host, _, port = bind.rpartition(":")
        return cls(host=host.strip("[]"), port=int(port), public_url=public_url, needs_key=True)

    def url(self, port: int) -> str:
        """Return the address that agents are told; it listens on this port."""
        if self.public_url:
            return self.public_url.rstrip("/")
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{port}"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret that whoever asks for an episode has to know."""

    path: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # a part of its address
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def has_path(self, path: str) -> bool:
        """Return whether the caller may know of the episode."""
        return _same(path, self.path)

    def has_key(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request shows the key, in a header that some API's clients use."""
        shown = [headers.get(name, "").removeprefix(BEARER) for name in HEADERS]
        return any(_same(each, self.key) for each in shown)


def _same(shown: str, known: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), known.encode())
