"""The interface of judges, and the nouns that go in and out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from art_cli.llms.base import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """One trajectory, as a judge sees it."""

    messages: list[Any]  # chat messages, ours or OpenAI's
    tools: list[Any] = field(default_factory=list)  # JSON schemas of what could be called
    context: str = ""  # what the env knows to have really happened


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A trajectory's score beside its siblings. Means nothing outside its group."""

    score: float  # in [0, 1]
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The scores of one group, in the order of its trajectories."""

    scores: list[Score]
    votes: list[list[float]] = field(default_factory=list)  # the scores of each vote
    orders: list[list[int]] = field(default_factory=list)  # of each vote, as shown; copies are not

    @property
    def spread(self) -> float:
        """Standard deviation between the votes, mean over the trajectories."""
        by_trajectory = list(zip(*self.votes, strict=True))
        return statistics.fmean(map(statistics.pstdev, by_trajectory)) if by_trajectory else 0.0


class Judge(Protocol):
    """Scores the trajectories of a group against each other."""

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        """Raises JudgeError where there are no scores that can be trusted, BudgetError."""
        ...

    def check_room(self, opening: list[Any], tools: list[Any]) -> None:
        """See that a group which begins so can be shown at all. Raises PreflightError."""
        ...

    async def ping(self) -> None:
        """Ask one small question, past any cache. Raises JudgeError."""
        ...

    @property
    def usage(self) -> Usage:
        """The requests since it was last taken."""
        ...

    @property
    def spent(self) -> float:
        """US dollars, over the whole run."""
        ...

    async def close(self) -> None:
        """End what was started for it."""
        ...
