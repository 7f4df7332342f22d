"""What every protocol has in common, to whoever serves it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from art_cli.rollout.gateway.asked import Answered, Asked, RequestError


class Question(Protocol):
    """A request that was understood."""

    @property
    def asked(self) -> Asked:
        """What it asks of the policy."""
        ...

    @property
    def streamed(self) -> bool:
        """Whether its answer is to be a stream."""
        ...

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        """Return the answer as one JSON value."""
        ...

    def events(self, answers: list[Answered]) -> Iterator[str]:
        """Return the answer as server-sent events."""
        ...


class Api(Protocol):
    """One protocol."""

    heartbeat: str  # what a stream says while nothing is there yet

    def read(self, body: bytes) -> Question:
        """Return what a body asks. Raises RequestError, with the mistakes."""
        ...

    def error(self, error: RequestError) -> dict[str, Any]:
        """Return a refusal as this protocol's clients read it."""
        ...

    def error_events(self, error: RequestError) -> str:
        """Return a refusal inside of a stream, and the stream's end."""
        ...
