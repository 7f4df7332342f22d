"""The interface of judges, and its data types."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from art_cli.llms.base import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """The part of a trajectory that a judge sees."""

    messages: list[Any]  # chat messages, ours or OpenAI's
    tools: list[Any] = field(default_factory=list)  # JSON schemas of the available tools
    context: str = ""  # the actual outcome according to the env


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A trajectory's score relative to its siblings. Not comparable between groups."""

    score: float  # in [0, 1]
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The scores of one group, in the order of its trajectories."""

    scores: list[Score]
    votes: list[list[float]] = field(default_factory=list)  # scores, by vote
    orders: list[list[int]] = field(default_factory=list)  # by vote; without duplicates

    @property
    def spread(self) -> float:
        """Standard deviation between the votes, averaged over the trajectories."""
        by_trajectory = list(zip(*self.votes, strict=True))
        return statistics.fmean(map(statistics.pstdev, by_trajectory)) if by_trajectory else 0.0


class Judge(Protocol):
    """Scores the trajectories of a group against each other."""

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        """Return a group's scores. Raises JudgeError if there are no valid ones, BudgetError."""
        ...

    def check_room(self, opening: list[Any], tools: list[Any]) -> None:
        """Check that a group with this opening fits at all. Raises PreflightError."""
        ...

    async def ping(self) -> None:
        """Ask one small question, bypassing any cache. Raises JudgeError."""
        ...

    @property
    def usage(self) -> Usage:
        """The requests since it was last taken."""
        ...

    @property
    def spent(self) -> float:
        """US dollars spent over the whole run."""
        ...

    async def close(self) -> None:
        """Close connections and servers that were started for the judge."""
        ...
