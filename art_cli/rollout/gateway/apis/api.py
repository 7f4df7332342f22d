"""The part that all protocols have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from art_cli.rollout.gateway.asked import Answered, Asked, RequestError


class Question(Protocol):
    """A request that was understood."""

    @property
    def asked(self) -> Asked:
        """The request to the policy."""
        ...

    @property
    def streamed(self) -> bool:
        """True if its answer is to be a stream."""
        ...

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        """Return the answer as one JSON value."""
        ...

    def events(self, answers: list[Answered]) -> Iterator[str]:
        """Return the answer as server-sent events."""
        ...

    def failed(self, error: RequestError) -> str:
        """Return a refusal that comes when the stream has begun, and the stream's end."""
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


class Responder(Protocol):
    """The answering side: an episode in training, or a policy that is deployed."""

    @property
    def models(self) -> list[str]:
        """The names of what answers."""
        ...

    @property
    def max_model_len(self) -> int:
        """Number of tokens that a prompt and its answer may have together."""
        ...

    async def complete(self, asked: Asked) -> list[Answered]:
        """Return as many turns as are asked for. Raises RequestError."""
        ...

    async def count(self, asked: Asked) -> int:
        """Return how many tokens a turn would stand behind. Raises RequestError."""
        ...
