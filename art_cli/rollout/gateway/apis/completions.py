"""OpenAI's older completions API, for plain text: POST /v1/completions."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from art_cli.rollout.gateway.apis.fields import check_fields
from art_cli.rollout.gateway.apis.openai_parts import error_body, usage
from art_cli.rollout.gateway.apis.request_body import MAX_TURNS, Stops, read_as
from art_cli.rollout.gateway.asked import Answered, Asked, RequestError

USUAL_LIMIT = 16  # tokens, where a request sets no limit; the same as OpenAI's
MAX_LOGPROBS = 5
MAX_PROMPT = 2**20  # token ids


class CompletionsRequest(BaseModel):
    """The fields that have an effect; fields.py lists the others."""

    model_config = ConfigDict(extra="allow")
    model: str = "policy"
    prompt: (
        str
        | Annotated[list[int], Field(min_length=1, max_length=MAX_PROMPT)]
        | Annotated[list[str], Field(min_length=1, max_length=1)]
        | Annotated[list[list[int]], Field(min_length=1, max_length=1)]
    )
    n: Annotated[int, Field(ge=1, le=MAX_TURNS)] | None = None
    best_of: int | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Stops | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: int | None = None

    def asked(self, size: int) -> Asked:
        """Convert the request to `Asked`. Raises RequestError."""
        unknown = check_fields(self, "completions")
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise RequestError(400, "best_of: this is not offered here; choose among n")
        prompt: Any = self.prompt
        if isinstance(prompt, list) and not isinstance(prompt[0], int):
            [prompt] = prompt
        if not prompt:
            raise RequestError(400, "prompt: it is empty; send a text to continue")
        return Asked(
            messages=[],
            raw=prompt if isinstance(prompt, str) else tuple(prompt),
            size=size,
            tools=[],
            limit=self.max_tokens or USUAL_LIMIT,
            stops=tuple(self.stop or ()),
            n=self.n or 1,
            logprobs=self.logprobs is not None,
            top_logprobs=self.logprobs or 0,
            model=self.model,
            unknown=unknown,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
        )


class CompletionsApi:
    """Implements Api."""

    heartbeat = ": still sampling\n\n"

    def read(self, body: bytes) -> CompletionsQuestion:
        request = read_as(CompletionsRequest, body)
        return CompletionsQuestion(request, request.asked(len(body)))

    def error(self, error: RequestError) -> dict[str, Any]:
        return error_body(error)


@dataclass(frozen=True)
class CompletionsQuestion:
    """Implements Question."""

    request: CompletionsRequest
    asked: Asked

    @property
    def streamed(self) -> bool:
        return bool(self.request.stream)

    @cached_property
    def _head(self) -> dict[str, Any]:
        id = f"cmpl-{secrets.token_hex(12)}"
        created = int(time.time())
        return {
            "id": id,
            "object": "text_completion",
            "created": created,
            "model": self.asked.model,
        }

    def body(self, answers: list[Answered]) -> dict[str, Any]:
        choices = [self._choice(n, a) for n, a in enumerate(answers)]
        return {**self._head, "choices": choices, "usage": usage(answers)}

    def events(self, answers: list[Answered]) -> Iterator[str]:
        for index, answer in enumerate(answers):  # whole: each chunk needs a finish_reason
            yield self._event(self._choice(index, answer))
        if (self.request.stream_options or {}).get("include_usage"):
            yield self._event(usage=usage(answers))
        yield "data: [DONE]\n\n"

    def failed(self, error: RequestError) -> str:
        return f"data: {json.dumps(error_body(error))}\n\ndata: [DONE]\n\n"

    def _event(self, *choices: dict[str, Any], **more: Any) -> str:
        return f"data: {json.dumps(self._head | {'choices': choices} | more)}\n\n"

    def _choice(self, index: int, answer: Answered) -> dict[str, Any]:
        return {
            "index": index,
            "text": answer.words,
            "finish_reason": answer.ended,
            "logprobs": _logprobs(answer) if self.asked.logprobs else None,
        }


def _logprobs(answer: Answered) -> dict[str, Any]:
    tokens, logprobs = answer.tokens, answer.completion.logprobs
    return {
        "tokens": tokens,
        "token_logprobs": logprobs,
        "top_logprobs": answer.likeliest or None,
        "text_offset": [0, *accumulate(len(t) for t in tokens)][: len(tokens)],
    }
