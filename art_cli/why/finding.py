"""A finding about a run: its cause, the evidence, and the recommended change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Weight = Literal["serious", "notable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason why a run does not learn, or learns less than it could.

    `serious`: the reward cannot be trusted, or will hardly rise while this lasts. `notable`: it
    costs signal, time or money.
    """

    name: str  # name of the rule, such as "no_signal"
    weight: Weight
    title: str  # the fault, in a sentence
    evidence: str  # the numbers that show the fault
    reason: str  # why the fault matters
    change: str  # the line of the config or of the env to change
    certainty: float = 0.5  # from 0 to 1; orders findings of the same weight
    example: str = ""  # a command that shows a trajectory with the fault
