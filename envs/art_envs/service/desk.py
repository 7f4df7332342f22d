"""The env of a customer-service task: tools on a database, a policy, and a customer.

A domain sets `num_goals` and `reasons`, overrides `make_database`, `draw_goal`, `policy`,
`is_identified` and `legal_writes`, and adds its tools. They are `async def`, so that the calls of
one turn run one after the other; they read and write `self.store`, and raise ToolError to refuse.
What changes it is marked `@write`. How an episode goes is in episode.py.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import ClassVar

from art_cli import (
    Message,
    Scenario,
    Split,
    Trajectory,
    play,
    seed_of,
    tools_of,
)
from art_envs.service.build import build_goals
from art_envs.service.cache import kept
from art_envs.service.episode import DeskEpisode, Size, text_of
from art_envs.service.goal import (
    COMMITMENTS,
    DONE,
    KINDS,
    Action,
    Goal,
    Kind,
    call,
    ever_wanted,
    settled_by,
)
from art_envs.service.store import Tables


class ServiceDesk(DeskEpisode):
    """The common part of all domains."""

    num_goals: ClassVar[dict[Size, dict[Split, int]]]

    # What a domain says.

    @classmethod
    def kinds(cls, cfg: DeskEpisode.Config) -> tuple[Kind, ...]:
        """Return what customers come for."""
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
        """Writes that the tools would accept now, for the goal's user: for gates and guesses.

        Where there are endlessly many (an address), a few stand for all.
        """
        raise NotImplementedError

    # Its data, generated once.

    @classmethod
    def database(cls, cfg: DeskEpisode.Config) -> Tables:
        """Return the tables that all episodes share; the same object at each call."""
        return _database(cls, cfg.size)

    @classmethod
    def goals(cls, cfg: DeskEpisode.Config) -> dict[Split, list[Goal]]:
        """Return all customers; the splits share no user. The same object at each call."""
        return _goals(cls, cls.Config(level=cfg.level, size=cfg.size, kinds=cfg.kinds))

    @classmethod
    def scenarios(cls, cfg: DeskEpisode.Config, split: Split) -> Iterable[Scenario]:
        """One for each goal."""
        for i, goal in enumerate(cls.goals(cfg)[split]):
            id = f"{split}-{i}"
            data = {"goal": goal, "kind": goal["kind"], "level": cfg.level}
            yield Scenario(id=id, split=split, seed=seed_of(cls.__name__, id), data=data)

    # The score.

    async def is_served(self) -> bool:
        """Return whether all was done, refused and told as it must be, and nothing else."""
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
        """Return whether the right writes, and no others, were done."""
        right = type(self)(self.scenario, self.cfg)
        for action in right.gold_writes():
            await right.act(action)
        return self.is_like(right)

    def is_like(self, other: ServiceDesk) -> bool:
        """Return whether two episodes of one scenario have done the same, whatever the way."""
        return self.store.is_same(other.store) and self.transferred == other.transferred

    async def score(self, trajectory: Trajectory) -> float:
        """1 where the customer was served as the policy says, else 0."""
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
        """Return what the customer wanted, what was right to do, and what was done."""
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
        """Return the writes of the right conversation, in its order."""
        return [s for s in self.goal["script"] if not isinstance(s, str) and self.is_write(s)]

    @classmethod
    def is_write(cls, action: Action) -> bool:
        """Return whether the action may change the database."""
        return tools_of(cls)[action["name"]].writes

    # Demonstrations.

    def gold(self) -> Iterator[str]:
        """Return the right conversation."""
        return self.assistant()

    @classmethod
    def demonstrations(cls, cfg: DeskEpisode.Config, num: int) -> Iterable[list[Message]]:
        """Return the right conversations; `demo_noise` of the decisions are guesses."""
        cfg = replace(cfg, user=None)
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            desk = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.seed))
            yield play(desk, desk.assistant(rng).__next__)

    def assistant(self, rng: random.Random | None = None) -> Iterator[str]:
        """The turns of one who knows the goal; with `rng`, one who guesses with `demo_noise`."""
        script, decision = self.goal["script"], self._decision()
        if rng and rng.random() < self.cfg.demo_noise:
            script = [*script[:decision], *self._guess(rng, script[decision:])]
        for i, step in enumerate(script):
            text = step if isinstance(step, str) else call_text(step)
            yield f"{self.goal['remark']} {text}".strip() if i == decision else text
        while True:
            yield DONE

    def _decision(self) -> int:
        """Return where the script turns from finding out to deciding."""
        for i, step in enumerate(self.goal["script"]):
            if not isinstance(step, str) and (self.is_write(step) or step["name"] in COMMITMENTS):
                return i
        return len(self.goal["script"]) - 1

    def _guess(self, rng: random.Random, right: Sequence[str | Action]) -> Sequence[str | Action]:
        """Return the right end of the script, a refusal, or a wrong write.

        A wrong write is of a record that has been looked up: one of a record that nobody spoke of
        would teach to make ids up.
        """
        no = [call("refuse", reason=rng.choice(list(self.reasons)))]
        steps = [step for step in self.goal["script"] if not isinstance(step, str)]
        seen = {str(v) for s in steps if not self.is_write(s) for v in s["arguments"].values()}
        near = [w for w in self.legal_writes() if seen & set(map(str, w["arguments"].values()))]
        wrong = self.goal["temptation"] or ([rng.choice(near)] if near else no)
        return rng.choice([right, no, [*wrong, DONE]])


@cache
def _database(desk: type[ServiceDesk], size: Size) -> Tables:
    return kept(f"{desk.__name__}-{size}", _code(desk), size, partial(desk.make_database, size))


@cache
def _goals(desk: type[ServiceDesk], cfg: ServiceDesk.Config) -> dict[Split, list[Goal]]:
    asked = [cfg.size, cfg.level, cfg.kinds]
    return kept(f"{desk.__name__}-goals", _code(desk), asked, partial(build_goals, desk, cfg))


def _code(desk: type[ServiceDesk]) -> Path:
    return Path(inspect.getfile(desk)).parent


def call_text(action: Action) -> str:
    """Return a tool call as a model writes it."""
    call = json.dumps({"name": action["name"], "arguments": action["arguments"]})
    return f"<tool_call>{call}</tool_call>"
