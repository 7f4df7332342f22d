"""The cost of a call: an upper bound beforehand, and the actual cost by the server's counts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from art_cli.config.sections.llm import LLMConfig
from art_cli.errors import PreflightError
from art_cli.llms.answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The prices of one model in US dollars a token. If there are several, the highest."""

    read: float
    written: float
    longest: int | None  # maximum tokens that one call may write; None: unknown

    @classmethod
    def of(cls, cfg: LLMConfig, model: str, info: dict[str, Any], limit: str | None) -> Rates:
        """Return the prices from the config or litellm's `info`, or 0 if neither has one.

        `limit` is the config key of the budget. Raises PreflightError if it could not be enforced.
        """
        given = cfg.prices if model == cfg.model else None
        known = _known(info, any_tier="service_tier" in cfg.params)
        read, written = (given.input / 1e6, given.output / 1e6) if given else known or (0.0, 0.0)
        longest = _count(cfg.params.get("max_completion_tokens") or cfg.params.get("max_tokens"))
        longest = longest or info.get("max_output_tokens") or info.get("max_tokens")
        if limit and not given and not known:
            raise PreflightError(
                f"{limit} cannot be kept: no price is known for {model}; add prices: {{input: ..., "
                "output: ...} (US dollars per million tokens, 0 where it is free; of a fallback "
                f"none can be given), or remove {limit}"
            )
        if limit and written and not longest:
            raise PreflightError(
                f"{limit} cannot be kept: nobody knows how long an answer of {model} can be; "
                "set params: {max_tokens: 2000}"
            )
        longest = longest and longest * (_count(cfg.params.get("n")) or 1)
        return cls(read=read, written=written, longest=longest or None)

    def most(self, asked: Any, room: int) -> float:
        """Return the maximum cost of a call in US dollars. `room` is the default output."""
        longest = room if self.longest is None else self.longest
        return most_tokens(asked) * self.read + longest * self.written

    def price(self, asked: Any, answer: Answer) -> float:
        """Return the cost of a call in US dollars. Tokens without a count are estimated."""
        read = most_tokens(asked) if answer.read is None else answer.read
        written = answer.size if answer.written is None else answer.written
        if answer.is_counted and answer.usd and 0 < answer.usd < math.inf:
            return answer.usd
        return read * self.read + written * self.written


def most_tokens(value: Any) -> int:
    """Return an upper bound of the tokens in a JSON value: no token has less than one byte.

    JSON's punctuation stands for the chat template's tokens around each message.
    """
    return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _known(info: dict[str, Any], *, any_tier: bool) -> tuple[float, float] | None:
    """Return the highest prices per input and output token, or None if litellm has none."""
    if info.get("input_cost_per_token") is None:
        return None

    def highest(*kinds: str) -> float:
        prices = [
            price
            for key, price in info.items()
            if key.startswith(kinds) and isinstance(price, int | float)
            if any_tier or not key.endswith("_priority")
        ]
        return max(prices, default=0.0)

    return (
        highest("input_cost_per_token", "cache_creation_input_token_cost"),
        highest("output_cost_per_token", "output_cost_per_reasoning_token"),
    )
