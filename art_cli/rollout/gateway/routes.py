"""Routes from names of models to those who answer, trained or not: `agent.models`, `.train`.

A request for a model that nobody has named is the policy's: agents ask for whatever they like.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from art_cli.engines.base import Engine
from art_cli.llms.base import AskedLLM

Trained = Literal["main", "all"] | frozenset[str]  # the names whose calls are


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The answerer of a request. Neither `base` nor `llm`: the policy."""

    base: Engine | None = None  # the policy's base as it was
    llm: AskedLLM | None = None
    trained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """By default the policy answers to every name, and all of it is trained."""

    models: Mapping[str, AskedLLM] = field(default_factory=dict)
    bases: frozenset[str] = frozenset()  # the names that the base answers to
    base: Engine | None = None
    train: Trained = "all"
    in_its_place: AskedLLM | None = None  # answers in the place of the policy

    @property
    def names(self) -> list[str]:
        """The names that somebody else than the policy answers to."""
        return sorted([*self.models, *self.bases])

    def of(self, name: str) -> Route:
        """Return who answers to the name of a model."""
        if name in self.bases:
            return Route(base=self.base)
        if llm := self.models.get(name, self.in_its_place):
            return Route(llm=llm)
        return Route(trained=not isinstance(self.train, frozenset) or name in self.train)
