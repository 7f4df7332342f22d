"""The section `sampling`: how the policy's turns are sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from art_cli.config.values import Count, CountOrZero

LEAST = 1e-3  # of a temperature, and of top_p: logits divided by less may overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """Sampling of a turn. Anything but temperature 1 and all tokens biases the ratio."""

    temperature: Annotated[float, Field(ge=LEAST, le=5)] = 1.0
    """Below 1, likely tokens come more often, and siblings differ less."""
    top_p: Annotated[float, Field(ge=LEAST, le=1)] = 1.0
    """Sample among the most likely tokens that together have this probability. 1: all."""
    top_k: CountOrZero = 0
    """Sample among this many of the most likely tokens. 0: all."""
    max_tokens: Count = 512
    """The most tokens of one turn. A turn that is cut off there calls no tools."""
