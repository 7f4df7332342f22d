"""A request to the policy and its answer, whichever protocol the program speaks.

Asked(messages=[{"role": "user", "content": "hi"}], size=120)
  -> [Answered(words="hello", thought="", calls=(), ended="stop", ...)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from art_cli.types import Completion, Message

CONTEXT = "context_length_exceeded"  # OpenAI's word


class RequestError(Exception):
    """An answer that is an HTTP error."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request for turns of the policy."""

    messages: list[Message]  # at least one, unless `raw` stands in their place
    size: int  # bytes of the body that it was read from
    tools: list[dict[str, Any]]  # that the model is shown, in OpenAI's form
    must_call: bool = False  # one of them
    forced_tool: str | None = None  # that has to be called, where it is named
    parallel: bool = True  # a turn may hold more than one call
    prefill: str = ""  # how the turn begins that is to be continued
    limit: int | None = None  # tokens of a turn
    stops: tuple[str, ...] = ()
    n: int = 1  # turns
    logprobs: bool = False
    top_logprobs: int = 0  # likeliest tokens in the place of each one
    response_schema: dict[str, Any] | None = None  # JSON Schema of the words
    raw: str | tuple[int, ...] | None = None  # to be gone on with, in the place of `messages`
    model: str = "policy"
    unknown: tuple[str, ...] = ()  # names of fields that nothing reads
    # What is sampled in training is the experiment's to say; these are a deployed policy's.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A tool call as a client is to answer it."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One turn of the policy, as its client sees it."""

    words: str  # beside the calls
    thought: str
    calls: tuple[AnsweredCall, ...]
    ended: Literal["stop", "length"]
    completion: Completion
    stop: str | None = None  # the text among `stops` that ended it
    tokens: list[str]  # of the completion, as text, where log-probabilities are wanted
    likeliest: list[dict[str, float]]  # in the place of each, and their log-probabilities
    num_prompt: int  # tokens
    num_thought: int = 0  # tokens of the completion that are thinking
    num_written: int | None = None  # tokens, of a model that is asked: it gives none of them

    @property
    def num_sampled(self) -> int:
        """Tokens of the turn."""
        return len(self.completion.token_ids) if self.num_written is None else self.num_written
