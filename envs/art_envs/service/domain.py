"""A domain of customer service: its customers, the rules of its tools, and the score."""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import ClassVar

from art_cli import (
    Split,
    Trajectory,
    tools_of,
)
from art_envs.service.cache import cached
from art_envs.service.episode import DeskEpisode, Size, text_of
from art_envs.service.goal import (
    KINDS,
    Action,
    Goal,
    Kind,
    ever_wanted,
    settled_by,
)
from art_envs.service.store import Tables


class Domain(DeskEpisode):
    """The hooks that a domain implements, its database, and the score of an episode."""

    num_goals: ClassVar[dict[Size, dict[Split, int]]]

    # Hooks of a domain.

    @classmethod
    def kinds(cls, cfg: DeskEpisode.Config) -> tuple[Kind, ...]:
        """Return the kinds of goals that customers have."""
        return cfg.kinds or KINDS[cfg.level]

    @classmethod
    def make_database(cls, size: Size) -> Tables:
        """Return the tables, the same at every call: JSON, with the customers in "users"."""
        raise NotImplementedError

    @classmethod
    def draw_goal(
        cls, cfg: DeskEpisode.Config, rng: random.Random, user_id: str, kind: Kind
    ) -> Goal | None:
        """Return a random goal of a user. None: the kind does not fit the user."""
        raise NotImplementedError

    def legal_writes(self) -> Iterable[Action]:
        """Return writes that the tools would accept now for the goal's user, for gates and guesses.

        If there are endlessly many, such as addresses, a few represent all.
        """
        raise NotImplementedError

    # The domain's data, generated once.

    @classmethod
    def database(cls, cfg: DeskEpisode.Config) -> Tables:
        """Return the tables that all episodes share; the same object at each call."""
        return _database(cls, cfg.size)

    # The score.

    async def is_served(self) -> bool:
        """Return whether all required actions, refusals and values were given, and no others."""
        wants = list(settled_by(self.goal))
        return (
            not self.faults
            and not (self.user and self.user.is_insisting)
            and all(v in self.told for w in wants if not w["reasons"] for v in w["outputs"])
            and all(set(w["reasons"]) & set(self.refusals) for w in wants if w["reasons"])
            and all((table, id) in self.store.seen for table, id in self.goal["evidence"])
            and await self.has_right_state()
        )

    async def has_right_state(self) -> bool:
        """Return whether exactly the right writes were made."""
        right = type(self)(self.scenario, self.cfg)
        for action in right.gold_writes():
            await right.act(action)
        return self.is_like(right)

    def is_like(self, other: Domain) -> bool:
        """Return whether two episodes left the same data, whatever the order of their writes."""
        return self.store.is_same(other.store) and self.transferred == other.transferred

    async def score(self, trajectory: Trajectory) -> float:
        """Return 1 if the customer was served according to the policy, otherwise 0."""
        success = float(await self.is_served())
        self.metrics = {
            "success": success,
            f"success_{self.goal['kind']}": success,
            "tool_errors": float(trajectory.num_tool_errors),
            **{f"fault_{name}": float(num) for name, num in self.faults.items()},
        }
        writes = [made for made in self.done if made["name"] != "transfer"]
        if self.cfg.level and writes:
            self.metrics["confirm_before_write"] = 1 - self.faults["unconfirmed"] / len(writes)
        return success

    async def judge_context(self) -> str:
        """Return the customer's wishes, the right actions, and the actions that were taken."""
        wants = list(settled_by(self.goal))
        told = [value for each in wants for value in each["outputs"]]
        refused = [" or ".join(each["reasons"]) for each in wants if each["reasons"]]
        changed = [
            f"{table} {id}: {json.dumps(now)}" for (table, id), now in self.store.changes().items()
        ]
        return "\n".join(
            [
                "The customer wanted: " + " ".join(w["words"] for w in ever_wanted(self.goal)),
                "The right changes: " + ("; ".join(map(text_of, self.gold_writes())) or "none"),
                "To be refused, for: " + (", ".join(refused) or "nothing"),
                "To be told: " + (", ".join(told) or "nothing in particular"),
                "Changes made: " + ("; ".join(map(text_of, self.done)) or "none"),
                "Refused, for: " + (", ".join(self.refusals) or "nothing"),
                "Against the policy: " + (", ".join(self.faults) or "nothing"),
                "Records after the episode that changed: " + ("; ".join(changed) or "none"),
            ]
        )

    def gold_writes(self) -> list[Action]:
        """Return the writes of the correct conversation, in order."""
        return [s for s in self.goal["script"] if not isinstance(s, str) and self.is_write(s)]

    @classmethod
    def is_write(cls, action: Action) -> bool:
        """Return whether the action may change the database."""
        return tools_of(cls)[action["name"]].writes


@cache
def _database(desk: type[Domain], size: Size) -> Tables:
    return cached(
        f"{desk.__name__}-{size}", code_folder(desk), size, partial(desk.make_database, size)
    )


def code_folder(desk: type[Domain]) -> Path:
    return Path(inspect.getfile(desk)).parent
