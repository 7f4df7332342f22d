"""The interface of engines. An engine is told which weights to serve and answers token ids with
token ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from art_cli.types import Completion

if TYPE_CHECKING:
    from art_cli.chat.grammar.grammars import Grammars

# The variables by which a run on a cluster knows its nodes that only serve (vllm/host.py): their
# addresses, and what a node shows to be believed.
HOSTS = "ART_ENGINE_HOSTS"
TOKEN = "ART_ENGINE_TOKEN"


class Session(Protocol):
    """One episode at the engine: its turns share a KV cache and a stream of random numbers."""

    async def generate(
        self,
        ids: list[int],
        *,
        max_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int = 0,
    ) -> Completion:
        """Sample one turn behind `ids`, the whole sequence so far.

        It ends with the end of the turn, with the token that completes one of the `stop` texts, or
        after `max_tokens`, if that is less than what `sampling` allows. A turn with a `grammar`
        (chat/grammar) is sampled from what of the distribution the grammar allows, and its
        log-probabilities are those of that. `top_logprobs` are those of so many likeliest tokens,
        beside the sampled one.

        Raises EngineError, and ConstraintError where the grammar is not supported.
        """
        ...

    def expect(self, coming: bool) -> None:
        """Say whether its next turn comes, or that of another player of its game comes first.

        Steps then do not wait for it. Called while no turn of it is being sampled.
        """
        ...

    def close(self) -> None:
        """Free what the session holds: its episode is over."""
        ...


class Engine(Protocol):
    """Serves one version of the policy at a time."""

    policy_version: int
    cached_tokens: int  # the least that its prefix cache keeps of a prompt
    grammars: Grammars  # compiled for what it serves

    def open(self, seed: int, *, awaited: bool = True) -> Session:
        """Begin an episode; all that is sampled in it follows from the seed.

        `awaited=False` is for an episode whose next turn may never come, such as a program's: no
        step waits for it.
        """
        ...

    async def sync(self, version: int) -> None:
        """Serve the trainer's present weights from now on, and call them `version`.

        Turns that are being sampled end with the weights they began with. Raises EngineError.
        """
        ...

    async def rest(self) -> None:
        """Free the device's memory until the next sync: the trainer is about to use it."""
        ...

    async def close(self) -> None:
        """End all that the engine started."""
        ...
