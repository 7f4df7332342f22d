"""The interface that every protocol implements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from art_cli.rollout.gateway.asked import Answered, Asked, RequestError


class Question(Protocol):
    """A request that a protocol has parsed."""

    @property
    def asked(self) -> Asked:
        """The request to the policy."""
        ...

    @property
    def streamed(self) -> bool:
        """True if the client wants the answer as a stream."""
        ...

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        """Return the answer as one JSON value."""
        ...

    def events(self, answers: list[Answered]) -> Iterator[str]:
        """Return the answer as server-sent events."""
        ...

    def failed(self, error: RequestError) -> str:
        """Return the events that report an error after the stream began, and end the stream."""
        ...


class Api(Protocol):
    """One protocol, such as OpenAI's chat completions."""

    heartbeat: str  # what a stream sends while the turn is still being sampled

    def read(self, body: bytes) -> Question:
        """Parse the body of a request. Raises RequestError, which lists the mistakes."""
        ...

    def error(self, error: RequestError) -> dict[str, Any]:
        """Return the body of an error response in the form that this protocol's clients read."""
        ...


class Responder(Protocol):
    """The answering side: an episode in training, or a deployed policy."""

    @property
    def models(self) -> list[str]:
        """The names of the models that answer requests."""
        ...

    @property
    def max_model_len(self) -> int:
        """The maximum number of tokens of a prompt and its answer together."""
        ...

    async def complete(self, asked: Asked) -> list[Answered]:
        """Return `asked.n` turns. Raises RequestError."""
        ...

    async def count(self, asked: Asked) -> int:
        """Return the number of prompt tokens that a turn would start from. Raises RequestError."""
        ...
