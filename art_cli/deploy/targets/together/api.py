"""Together AI's HTTP API, version 2: what is asked again, and what must not be.

What was read may be read again. What was to be made may have been made although no answer came, and
what is made twice is paid twice: such a failure is an `Unanswered`, and the caller looks first.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from art_cli.errors import ArtError, PreflightError

DEFAULT_URL = "https://api.together.ai"
KEY = "TOGETHER_API_KEY"
TIMEOUT = 60.0  # seconds, of one request
ATTEMPTS = 6
PAUSE = 0.5  # seconds before the second attempt, doubled before each further one
LONGEST_PAUSE = 30.0
GONE, CONFLICT = 404, 409


class ApiError(ArtError):
    """The service refused; says what it said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Unanswered(ArtError):
    """No answer, or the service's own failure: what was asked for may have happened."""


class TogetherAPI:
    """The requests, with the user's key. `TOGETHER_BASE_URL` points at another service."""

    def __init__(self) -> None:
        """Raises PreflightError without a key."""
        key = os.environ.get(KEY)
        if not key:
            raise PreflightError(
                f"{KEY} is not set; make a key at https://api.together.ai/settings/api-keys and "
                "put it into .env or the environment"
            )
        self.url = os.environ.get("TOGETHER_BASE_URL", DEFAULT_URL).rstrip("/").removesuffix("/v1")
        self._settings: dict[str, Any] = {
            "headers": {"Authorization": f"Bearer {key}"},
            "timeout": TIMEOUT,
            "trust_env": httpx.URL(self.url).host not in ("127.0.0.1", "localhost"),
        }

    def get(self, path: str, **query: Any) -> Any:
        """Read; asked again after failures that pass. Raises ApiError, PreflightError, ArtError."""
        return _patiently(lambda: self._ask("GET", path, query), (Unanswered,))

    def list(self, path: str, **query: Any) -> Iterator[Any]:
        """Return all pages of a list, one thing after the other. Raises as `get` does."""
        while True:
            page = self.get(path, **query)
            yield from page["data"]
            if not page.get("next_cursor"):
                return
            query["after"] = page["next_cursor"]

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Change something, once. Raises Unanswered, ApiError, PreflightError."""
        return _patiently(lambda: self._ask(method, path, query, body), ())

    def insist(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Change something that is the same when it is done twice. Raises as `get` does."""
        return _patiently(lambda: self._ask(method, path, query, body), (Unanswered,))

    def _ask(self, method: str, path: str, query: dict[str, Any], body: Any = None) -> Any:
        try:
            response = httpx.request(
                method, f"{self.url}{path}", params=query, json=body, **self._settings
            )
        except httpx.ConnectError as e:
            raise PreflightError(f"{self.url} cannot be reached: {e}") from e
        except httpx.HTTPError as e:
            raise Unanswered(f"{self.url}{path} gave no answer: {e or type(e).__name__}") from e
        if response.status_code == 429:
            raise _Busy(_message(response), _retry_after(response))
        if response.status_code >= 500:
            raise Unanswered(f"Together: HTTP {response.status_code}: {_message(response)}")
        if response.status_code == 401:
            raise PreflightError(f"Together refuses {KEY}: {_message(response)}")
        if response.status_code >= 400:
            raise ApiError(response.status_code, f"Together: {_message(response)}")
        try:
            return response.json() if response.content else {}
        except ValueError as e:
            raise Unanswered(f"{self.url}{path} answered with what is no JSON") from e


class _Busy(ArtError):
    """HTTP 429: it was not done, and may be asked for again."""

    def __init__(self, message: str, wait: float | None) -> None:
        super().__init__(f"Together is too busy: {message}")
        self.wait = wait


def _patiently(ask: Callable[[], Any], passing: tuple[type[ArtError], ...]) -> Any:
    for attempt in range(ATTEMPTS):
        try:
            return ask()
        except (_Busy, *passing) as e:
            if attempt == ATTEMPTS - 1:
                raise
            wait = e.wait if isinstance(e, _Busy) and e.wait is not None else PAUSE * 2**attempt
            time.sleep(min(wait, LONGEST_PAUSE))
    raise AssertionError


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500] or f"HTTP {response.status_code}"


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return None
