"""A finding about a run: one sentence of why, what shows it, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Weight = Literal["serious", "notable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why a run does not learn, or learns less than it could.

    `serious`: its reward cannot be trusted, or will hardly rise while this lasts. `notable`: it
    costs signal, time or money.
    """

    name: str  # the rule: "no_signal"
    weight: Weight
    title: str  # what is the case
    evidence: str  # the numbers that show it
    reason: str  # why that matters
    change: str  # the line of the config, or of the env, to change
    certainty: float = 0.5  # from 0 to 1; ranks the findings of one weight
    example: str = ""  # where to look: a trajectory of the run
