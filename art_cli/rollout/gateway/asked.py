"""A request to the policy and its answer, independent of the program's protocol.

Asked(messages=[{"role": "user", "content": "hi"}], size=120)
  -> [Answered(words="hello", thought="", calls=(), ended="stop", ...)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from art_cli.types import Completion, Message

CONTEXT = "context_length_exceeded"  # OpenAI's error code


class RequestError(Exception):
    """A request that is answered with an HTTP error."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request for turns of the policy."""

    messages: list[Message]  # at least one, unless `raw` is set
    size: int  # bytes of the request body
    tools: list[dict[str, Any]]  # shown to the model, in OpenAI's form
    must_call: bool = False  # the turn must call a tool
    forced_tool: str | None = None  # the name of the tool that the turn must call
    parallel: bool = True  # a turn may make more than one call
    prefill: str = ""  # the beginning of the turn, which the policy continues
    limit: int | None = None  # maximum tokens of a turn
    stops: tuple[str, ...] = ()
    n: int = 1  # turns to sample
    logprobs: bool = False
    top_logprobs: int = 0  # likeliest tokens to report at each position
    response_schema: dict[str, Any] | None = None  # JSON Schema of the answer's text
    raw: str | tuple[int, ...] | None = None  # text or token ids to continue, not `messages`
    model: str = "policy"
    unknown: tuple[str, ...] = ()  # names of fields that have no effect and no documentation
    # In training the experiment's config decides these; they are for a deployed policy.
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredCall:
    """A tool call in the form that the client receives."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """One turn of the policy in the form that its client receives."""

    words: str  # the text outside the calls
    thought: str
    calls: tuple[AnsweredCall, ...]
    ended: Literal["stop", "length"]
    completion: Completion
    stop: str | None = None  # the text in `stops` that ended the turn
    tokens: list[str]  # text of each token, if log-probabilities are wanted
    likeliest: list[dict[str, float]]  # log-probabilities of the likeliest tokens, by position
    num_prompt: int  # tokens
    num_thought: int = 0  # tokens of the completion that are thinking
    num_written: int | None = None  # tokens, of a model asked by API, whose token ids are unknown

    @property
    def num_sampled(self) -> int:
        """The number of tokens in the turn."""
        return len(self.completion.token_ids) if self.num_written is None else self.num_written
