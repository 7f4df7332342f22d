"""The env of a customer-service task: tools on a database, a policy, and a customer.

A domain sets `num_goals`, overrides `make_database`, `draw_goal`, `policy` and `legal_writes`, and
adds its tools. They are `async def`, so that the calls of one turn run one after the other; they
read and write `self.store`, and raise ToolError to refuse.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from art_cli import (
    Done,
    Env,
    LLMConfig,
    Message,
    Scenario,
    Split,
    Step,
    ToolError,
    Trajectory,
    play,
    seed_of,
    tool,
    tools_of,
)
from art_envs.service.answer import SLOTS, Slots, agrees, denies, says
from art_envs.service.arithmetic import calculated
from art_envs.service.build import build_goals
from art_envs.service.cache import kept
from art_envs.service.goal import DONE, REFUSAL, Action, Goal, Kind
from art_envs.service.store import Store, Tables
from art_envs.service.user import LLMUser, ScriptedUser, User

Level = Literal[0, 1, 2, 3]
Size = Literal["full", "small"]


class ServiceDesk(Env):
    """The common part of all domains."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        # 0: a ticket that holds all facts, and no user. 1: one write, a user who tells all at once.
        # 2: facts must be asked for and ids found. 3: also pressure and changes of mind.
        level: Level = 2
        size: Size = "full"  # small: few records, short ids and policy, for a very small model
        kinds: tuple[Kind, ...] = ()  # only these; empty: all that the level has
        user: LLMConfig | None = None  # who plays the user from level 1 on; null: a script
        require_confirmation: bool = False  # a write without the user's yes fails the episode
        # Share of demonstrated decisions that are guesses, so that reward has something to teach.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.0

    slots: ClassVar[Slots] = SLOTS  # what an assistant may ask for
    num_goals: ClassVar[dict[Size, dict[Split, int]]]

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.goal: Goal = scenario.data["goal"]
        self.store = Store(self.database(cfg))
        self.user: User | None = None  # from level 1 on
        self.answers: list[str] = []  # the assistant's turns without a tool call
        self.transferred = False
        self._goodbyes = 0

    # What a domain says.

    @classmethod
    def make_database(cls, size: Size) -> Tables:
        """Return the tables, the same at every call: JSON, with the customers in "users"."""
        raise NotImplementedError

    @classmethod
    def draw_goal(cls, cfg: Config, rng: random.Random, user_id: str, kind: Kind) -> Goal | None:
        """Return a random goal of a user. None: the kind does not fit the user."""
        raise NotImplementedError

    @classmethod
    def policy(cls, cfg: Config) -> str:
        """Return the system prompt."""
        raise NotImplementedError

    def legal_writes(self) -> Iterable[Action]:
        """Writes that the tools would accept now, for the goal's user: for gates and guesses.

        Where there are endlessly many (an address), a few stand for all.
        """
        raise NotImplementedError

    # Its data, generated once.

    @classmethod
    def database(cls, cfg: Config) -> Tables:
        """Return the tables that all episodes share; the same object at each call."""
        return _database(cls, cfg.size)

    @classmethod
    def goals(cls, cfg: Config) -> dict[Split, list[Goal]]:
        """Return all customers; the splits share no user. The same object at each call."""
        return _goals(cls, cls.Config(level=cfg.level, size=cfg.size, kinds=cfg.kinds))

    # The episode.

    @classmethod
    def scenarios(cls, cfg: Config, split: Split) -> Iterable[Scenario]:
        """One for each goal."""
        for i, goal in enumerate(cls.goals(cfg)[split]):
            id = f"{split}-{i}"
            data = {"goal": goal, "kind": goal["kind"], "level": cfg.level}
            yield Scenario(id=id, split=split, seed=seed_of(cls.__name__, id), data=data)

    async def start(self) -> list[Message]:
        """Return the policy, and the ticket or the user's first words."""
        if self.cfg.level > 0:
            self.user = self._make_user()
        return [
            {"role": "system", "content": self.policy(self.cfg)},
            {"role": "user", "content": self.goal["opening"]},
        ]

    def _make_user(self) -> User:
        if self.cfg.user is None:
            return ScriptedUser(self.goal, self.slots)
        return LLMUser(self.goal, self.slots, self.services.llm(self.cfg.user))

    async def reply(self, text: str) -> str | Done:
        """Return the user's answer. A ticket is closed by it.

        The episode ends when the user says goodbye and nothing is left to do, or says it a second
        time.
        """
        self.answers.append(text)
        if self.user is None:
            return Done()
        said = await self.user.say(text)
        if said.leaving:
            self._goodbyes += 1
            if self._goodbyes > 1 or await self.is_settled():
                return Done()
        return said.text

    @tool()
    async def calculate(self, expression: str) -> str:
        """Calculate a sum."""
        return calculated(expression)

    @tool(writes=True)
    async def transfer(self, summary: str) -> Done:
        """Hand over to a human."""
        self.transferred = True
        return Done()

    # The score.

    async def is_settled(self) -> bool:
        """Return whether the database and what the customer was told are as they must be."""
        goal = self.goal
        return (
            all(any(says(answer, value) for answer in self.answers) for value in goal["outputs"])
            and (not goal["denial"] or any(denies(answer) for answer in self.answers))
            and all((table, id) in self.store.seen for table, id in goal["evidence"])
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
        """1 where all is settled, else 0."""
        confirmed = confirmed_share(trajectory.steps, type(self)) if self.cfg.level else None
        success = await self.is_settled()
        if self.cfg.require_confirmation and confirmed is not None:
            success = success and confirmed == 1
        self.metrics = {
            "success": float(success),
            f"success_{self.goal['kind']}": float(success),
            "tool_errors": float(trajectory.num_tool_errors),
        }
        if confirmed is not None:
            self.metrics["confirm_before_write"] = confirmed
        return float(success)

    async def judge_context(self) -> str:
        """Return what the customer wanted, what was right to do, and what was done."""
        goal = self.goal
        right = [f"{a['name']}({json.dumps(a['arguments'])})" for a in self.gold_writes()]
        changed = [
            f"{table} {id}: {json.dumps(now)}" for (table, id), now in self.store.changes().items()
        ]
        return "\n".join(
            [
                "The customer wanted: " + " ".join(goal["wants"] + goal["fallbacks"]),
                "The right changes: " + ("; ".join(right) or "none"),
                "Something had to be refused: " + ("yes" if goal["denial"] else "no"),
                "He had to be told: " + (", ".join(goal["outputs"]) or "nothing in particular"),
                "Records after the episode that changed: " + ("; ".join(changed) or "none"),
            ]
        )

    async def act(self, action: Action) -> Any:
        """Call a tool as the model would. Raises ToolError where it refuses."""
        spec = tools_of(type(self)).get(action["name"])
        if spec is None:
            raise ToolError(f"there is no tool {action['name']!r}")
        return await getattr(self, spec.name)(**spec.parse(action["arguments"]))

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
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
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
        """Where the script turns from finding out to deciding: its first write, proposal or no."""
        script = self.goal["script"]
        for i, step in enumerate(script):
            if not isinstance(step, str) and self.is_write(step):
                return i - 1 if i and isinstance(script[i - 1], str) else i
        return len(script) - 1

    def _guess(self, rng: random.Random, right: Sequence[str | Action]) -> Sequence[str | Action]:
        wrong = self.goal["temptation"] or [rng.choice(list(self.legal_writes()))]
        return rng.choice([right, [REFUSAL], [*wrong, DONE]])


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


def confirmed_share(steps: Sequence[Step], desk: type[ServiceDesk]) -> float | None:
    """Return the share of calls of writing tools before which the user last said yes.

    None: no such call.
    """
    confirmed: list[bool] = []
    yes = False
    tools = tools_of(desk)
    for step in steps:
        if step.tool is None:
            yes = agrees(step.result or "")
            continue
        spec = tools.get(step.tool)
        if spec and spec.writes and spec.name != "transfer":
            confirmed.append(yes)
    return sum(confirmed) / len(confirmed) if confirmed else None
