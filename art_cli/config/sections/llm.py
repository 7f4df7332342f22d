"""A model behind an API: a judge, a simulated user, an opponent, a model beside the policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from art_cli.config.values import FORBID_UNKNOWN, Count, CountOrZero, NonNegative, Positive

REFERENCE = "reference"  # as the name of a model: the policy's own base, its adapter off


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesConfig:
    """US dollars per million tokens, for a model whose price litellm does not know."""

    input: NonNegative
    """The price of a million tokens of the prompt, in US dollars."""
    output: NonNegative
    """The price of a million generated tokens, in US dollars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMConfig:
    """A model behind an API, as litellm names it: openai/o3, ollama_chat/qwen3, ...

    `openai/NAME` with `api_base` is a server of one's own that speaks OpenAI's protocol. It costs
    what `prices` says, or nothing. `api_base`, `command` and `api_key_env` belong to `model`, not
    to the fallbacks.
    """

    __pydantic_config__ = FORBID_UNKNOWN

    model: str
    """The name that litellm knows the model by, for example openai/gpt-4.1-mini."""
    fallbacks: list[str] = field(default_factory=list)
    """Models that are asked in turn where the one before has failed."""
    command: list[str] | None = None
    """A server that is started and stopped with the run. `{port}` and `{python}` are filled in."""
    api_base: str | None = None
    """The address of a server that is running already, for example http://127.0.0.1:8000/v1."""
    api_key_env: str | None = None
    """The environment variable that holds the key. null: the provider's own, such as
    OPENAI_API_KEY."""
    params: dict[str, Any] = field(default_factory=dict)
    """Further arguments of `litellm.completion`, for example {temperature: 0}."""
    prices: PricesConfig | None = None
    """What tokens cost. null: what litellm knows."""
    max_input_tokens: Annotated[int, Field(ge=512)] | None = None
    """The most tokens of one prompt. null: what litellm knows of the model."""
    concurrency: Count = 16
    """The most requests at once. Lower it where the provider answers 429."""
    timeout: Positive = 120.0
    """Seconds that one attempt may take."""
    retries: CountOrZero = 5
    """Further attempts after 429, 5xx or a timeout."""
