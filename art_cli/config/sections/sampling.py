"""The section `sampling`: the sampling of the policy's turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from art_cli.config.values import Count, CountOrZero

LEAST = 1e-3  # lower limit of temperature and top_p: dividing logits by less may overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """Sampling of a turn. Values other than temperature 1 and all tokens bias the policy ratio."""

    temperature: Annotated[float, Field(ge=LEAST, le=5)] = 1.0
    """Below 1, likely tokens are sampled more often, and the episodes of a group differ less."""
    top_p: Annotated[float, Field(ge=LEAST, le=1)] = 1.0
    """Sample from the most likely tokens with at least this total probability. 1: all tokens."""
    top_k: CountOrZero = 0
    """Sample from this many of the most likely tokens. 0: all tokens."""
    max_tokens: Count = 512
    """The most tokens of one turn. A turn that is cut off at this limit makes no tool calls."""
