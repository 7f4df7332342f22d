"""The cost of a call: at most, before it is made, and really, by the server's count of tokens."""

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
    """The prices of one model, in US dollars a token: where they differ, the highest."""

    read: float
    written: float
    longest: int | None  # tokens of all that one call may write; None: it is not known

    @classmethod
    def of(cls, cfg: LLMConfig, model: str, info: dict[str, Any], limit: str | None) -> Rates:
        """Return those that the config gives, or those in litellm's `info`; else it is free.

        `limit` is the setting that limits what may be spent. Raises PreflightError where there is
        one that could not be kept.
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
                f"{limit} cannot be kept: nobody knows how long an answer of {model} can be; say "
                "it: params: {max_tokens: 2000}"
            )
        longest = longest and longest * (_count(cfg.params.get("n")) or 1)
        return cls(read=read, written=written, longest=longest or None)

    def most(self, asked: Any, room: int) -> float:
        """Return what a call can cost at most; `room` tokens are written where nobody knows."""
        longest = room if self.longest is None else self.longest
        return most_tokens(asked) * self.read + longest * self.written

    def price(self, asked: Any, answer: Answer) -> float:
        """Return what a call has cost; what the server does not count is counted here."""
        read = most_tokens(asked) if answer.read is None else answer.read
        written = answer.size if answer.written is None else answer.written
        if answer.is_counted and answer.usd and 0 < answer.usd < math.inf:
            return answer.usd
        return read * self.read + written * self.written


def most_tokens(value: Any) -> int:
    """Return how many tokens a JSON value can be at most: none is made of less than a byte.

    The marks of JSON stand for what a chat template puts around each message.
    """
    return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _known(info: dict[str, Any], *, any_tier: bool) -> tuple[float, float] | None:
    """Return what a token, read and written, costs at most, if litellm knows it."""
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
