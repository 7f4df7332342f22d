"""Routes from the model name in a request to the model that answers: `agent.models`, `.train`.

A request for an unknown model goes to the policy: agents ask for arbitrary model names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from art_cli.engines.base import Engine
from art_cli.llms.base import AskedLLM

Trained = Literal["main", "all"] | frozenset[str]  # the model names whose calls are trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The model that answers a request. If neither `base` nor `llm` is set, it is the policy."""

    base: Engine | None = None  # the base model without the policy's training
    llm: AskedLLM | None = None
    trained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """The routes of a run. By default the policy answers every name and trains on every call."""

    models: Mapping[str, AskedLLM] = field(default_factory=dict)
    bases: frozenset[str] = frozenset()  # the names that the base model answers
    base: Engine | None = None
    train: Trained = "all"
    in_its_place: AskedLLM | None = None  # answers instead of the policy

    @property
    def names(self) -> list[str]:
        """The names that a model other than the policy answers."""
        return sorted([*self.models, *self.bases])

    def of(self, name: str) -> Route:
        """Return the route of a model name."""
        if name in self.bases:
            return Route(base=self.base)
        if llm := self.models.get(name, self.in_its_place):
            return Route(llm=llm)
        return Route(trained=not isinstance(self.train, frozenset) or name in self.train)
