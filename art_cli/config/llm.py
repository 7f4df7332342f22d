"""A model that is asked: a judge, a simulated user, a model beside the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from art_cli.config.values import FORBID_UNKNOWN, Count, CountOrZero, NonNegative, Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesConfig:
    """US dollars per million tokens, for a model whose price litellm does not know."""

    input: NonNegative
    output: NonNegative


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMConfig:
    """A model that is asked, not trained, as litellm names it: openai/o3, ollama_chat/qwen3, ...

    `openai/NAME` with `api_base` is a server of one's own that speaks OpenAI's protocol; it costs
    what `prices` says, or nothing. `api_base`, `command` and `api_key_env` are of `model`, not of
    the fallbacks.
    """

    __pydantic_config__ = FORBID_UNKNOWN
    model: str
    fallbacks: list[str] = field(default_factory=list)  # asked in turn where the one before fails
    command: list[str] | None = None  # a server to start and stop with the run; {port}, {python}
    api_base: str | None = None
    api_key_env: str | None = None  # the variable that holds the key, if not the provider's own
    params: dict[str, Any] = field(default_factory=dict)  # further ones of litellm.completion
    prices: PricesConfig | None = None
    max_input_tokens: Annotated[int, Field(ge=512)] | None = None  # null: what litellm knows
    concurrency: Count = 16  # calls at once
    timeout: Positive = 120.0  # seconds, of one attempt
    retries: CountOrZero = 5  # after 429, 5xx and timeouts
