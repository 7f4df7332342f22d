"""A model behind an API: a judge, a simulated user, an opponent, a model beside the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from art_cli.config.values import FORBID_UNKNOWN, Count, CountOrZero, NonNegative, Positive

REFERENCE = "reference"  # as a model's name: the policy's base without the adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesConfig:
    """US dollars per million tokens, for a model whose price litellm does not know."""

    input: NonNegative
    """The price of a million tokens of the prompt, in US dollars."""
    output: NonNegative
    """The price of a million generated tokens, in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMConfig:
    """A model behind an API, with its name in litellm: openai/o3, ollama_chat/qwen3, ...

    `openai/NAME` with `api_base` is your own server with OpenAI's protocol. It costs what `prices`
    says, or nothing. `api_base`, `command` and `api_key_env` apply to `model`, not to the
    fallbacks.
    """

    __pydantic_config__ = FORBID_UNKNOWN

    model: str
    """The model's name in litellm, for example openai/gpt-4.1-mini."""
    fallbacks: list[str] = field(default_factory=list)
    """Models to try in order if the one before fails."""
    command: list[str] | None = None
    """A server to start and stop with the run. `{port}` and `{python}` are filled in."""
    api_base: str | None = None
    """The URL of a server that is already running, for example http://127.0.0.1:8000/v1."""
    api_key_env: str | None = None
    """The environment variable with the key. null: the provider's own, such as OPENAI_API_KEY."""
    params: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `litellm.completion`, for example {temperature: 0}."""
    prices: PricesConfig | None = None
    """The price of tokens. null: litellm's price."""
    max_input_tokens: Annotated[int, Field(ge=512)] | None = None
    """The most tokens of one prompt. null: litellm's value for the model."""
    concurrency: Count = 16
    """The most requests at once. Lower it if the provider answers 429."""
    timeout: Positive = 120.0
    """Seconds that one attempt may take."""
    retries: CountOrZero = 5
    """Further attempts after HTTP 429 or 5xx, or a timeout."""
