"""The interface of engines, which sample token ids after token ids from given weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from art_cli.types import Completion

if TYPE_CHECKING:
    from art_cli.chat.grammar.grammars import Grammars

# Environment variables that tell a run on a cluster its serving nodes (vllm/host.py): their
# addresses, and the token for requests to them.
HOSTS = "ART_ENGINE_HOSTS"
TOKEN = "ART_ENGINE_TOKEN"


class Session(Protocol):
    """One episode at the engine. Its turns share a KV cache and a random stream."""

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        """Sample one turn after `ids`, the whole sequence so far.

        The turn ends with an end token, with the token that completes one of the `stop` texts, or
        after `max_tokens` (at most those of `sampling`). With a `grammar` (chat/grammar), the
        distribution is restricted to allowed tokens, also for log-probabilities. `top_logprobs` is
        the number of likeliest tokens to report at each position.

        Raises EngineError, and ConstraintError if the grammar is not supported.
        """
        ...

    def expect(self, coming: bool) -> None:
        """Say whether this session's next turn comes before that of another player of its game.

        If not, steps do not wait for it. Called while no turn of the session is being sampled.
        """
        ...

    def close(self) -> None:
        """Free the session's resources at the end of its episode."""
        ...


class Engine(Protocol):
    """Serves one version of the policy at a time."""

    policy_version: int
    cached_tokens: int  # minimum length of a prompt prefix that is cached
    grammars: Grammars  # compiled for its tokenizer

    def open(self, seed: int, *, awaited: bool = True) -> Session:
        """Begin an episode. Everything sampled in it is determined by the seed.

        `awaited=False` is for an episode whose next turn may never come, such as an external
        program's. No step waits for it.
        """
        ...

    async def sync(self, version: int) -> None:
        """Serve the trainer's present weights from now on, as `version`.

        Turns in progress end with the weights that they started with. Raises EngineError.
        """
        ...

    async def rest(self) -> None:
        """Free device memory for the trainer until the next sync."""
        ...

    async def close(self) -> None:
        """Stop everything that the engine started."""
        ...
