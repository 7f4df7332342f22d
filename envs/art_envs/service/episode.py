"""One conversation at a desk: what is said, what is done, and what an assistant commits itself to.

An episode is judged by what was done: the writes, and three commitments that are tools too.

    confirm   asks the customer for a yes to one write, which then allows exactly that write
    refuse    tells the customer no, for a reason that must be true
    tell      gives the customer a value that they asked for; a wrong one cannot be taken back

Words without a call ask, explain and close the conversation. They settle nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from art_cli import Done, Env, LLMConfig, Message, Scenario, ToolError, tool, tools_of
from art_envs.service.arithmetic import calculated
from art_envs.service.asking import SLOTS, Slots
from art_envs.service.goal import (
    MINDS_FROM,
    Action,
    Goal,
    Kind,
    Want,
    call,
    ever_wanted,
    settled_by,
)
from art_envs.service.store import Store, Tables
from art_envs.service.user import LLMUser, Said, ScriptedUser, User
from art_envs.service.values import is_value

Level = Literal[0, 1, 2, 3, 4]
Size = Literal["full", "small"]


# Appended to the policy at level 0.
TICKET = (
    "You work on a ticket. It is the customer's order: nobody answers, and nothing is to be "
    "confirmed. What you write closes it."
)
Fault = Literal["unidentified", "unconfirmed", "refused_write", "false_refusal", "false_answer"]
Method = Callable[..., Awaitable[Any]]


class ForbiddenError(ToolError):
    """Raised by a write that the policy forbids: the attempt fails the episode."""


def write(method: Method) -> Method:
    """Turn a method of a desk into a tool that changes the database."""

    @wraps(method)
    async def recorded(self: DeskEpisode, **arguments: Any) -> Any:
        made = call(method.__name__, **arguments)
        agreed = await self.is_agreed(made)  # must be checked before the records change
        try:
            result = await method(self, **arguments)
        except ToolError as e:
            if isinstance(e, ForbiddenError) or self.forbids(made):
                self.faults["refused_write"] += 1
            raise
        self.note_write(made, agreed=agreed)
        return result

    return tool(writes=True)(recorded)


def read(method: Method) -> Method:
    """Turn a method of a desk into a tool that looks something up."""

    @wraps(method)
    async def recorded(self: DeskEpisode, **arguments: Any) -> Any:
        result = await method(self, **arguments)
        self.looked_up.add(text_of(call(method.__name__, **arguments)))
        return result

    return tool()(recorded)


class DeskEpisode(Env):
    """The common part of all conversations."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        # 0: a ticket that contains all facts, and no user. 1: one write, and a user who tells
        # everything at once. 2: facts must be asked for and ids found. 3: also pressure and changes
        # of mind. 4: also several items and writes at once, references, and long openings.
        level: Level = 2
        size: Size = "full"  # small: few records, short ids and policy, for a very small model
        kinds: tuple[Kind, ...] = ()  # only these kinds; empty: all kinds of the level
        user: LLMConfig | None = None  # who plays the user from level 1 on; null: a script
        # Share of demonstrated decisions that are guesses, so that RL has something to improve.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.0

        most_when_small: ClassVar[int] = 1  # level; a small domain lacks what higher ones ask for

        def __post_init__(self) -> None:
            """Raise ValueError if a small domain does not have the level."""
            most = self.most_when_small
            if self.size == "small" and self.level > most:
                raise ValueError(
                    f"size: small has no level {self.level}, levels end at {most} there; write "
                    f"level: {most}, or leave size out"
                )

    slots: ClassVar[Slots] = SLOTS  # facts that an assistant may ask for
    reasons: dict[str, str]  # reasons for refusals -> the sentence that the customer hears

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.goal: Goal = scenario.data["goal"]
        self.store = Store(self.database(cfg))
        self.user: User | None = None  # from level 1 on
        self.done: list[Action] = []  # the writes that were made, in order
        self.refusals: list[str] = []  # the reasons that were given
        self.told: set[str] = set()  # required values that the customer was told
        self.faults: Counter[Fault] = Counter()
        self.transferred = False
        self.looked_up: set[str] = set()  # the distinct calls that looked something up
        self._num_known = 0  # the size of `looked_up` when the assistant last wrote to the customer
        self._agreed: Action | None = None  # the one write that the customer has agreed to
        self._goodbyes = 0
        if cfg.level > 1:  # twice the longest script, because some assistants announce each look-up
            self.max_turns = 60 if cfg.level < MINDS_FROM else 80

    @classmethod
    def database(cls, cfg: Config) -> Tables:
        """Return the tables that all episodes share; the same object at each call."""
        raise NotImplementedError

    @classmethod
    def policy(cls, cfg: Config) -> str:
        """Return the system prompt."""
        raise NotImplementedError

    def forbids(self, write: Action) -> bool:
        """Return whether the policy forbids a write that is also impossible."""
        return False

    def is_identified(self) -> bool:
        """Return whether the customer is identified as the policy requires."""
        raise NotImplementedError

    async def start(self) -> list[Message]:
        """Return the policy, and the ticket or the user's first message."""
        policy = self.policy(self.cfg)
        if self.cfg.level > 0:
            self.user = self._make_user()
        else:
            policy = f"{policy}\n{TICKET}"
        return [
            {"role": "system", "content": policy},
            {"role": "user", "content": self.goal["opening"]},
        ]

    def _make_user(self) -> User:
        if self.cfg.user is None:
            return ScriptedUser(self.goal, self.slots)
        return LLMUser(self.goal, self.slots, self.services.llm(self.cfg.user))

    async def reply(self, text: str) -> str | Done:
        """Return the user's answer. Any text closes a ticket."""
        if self.user is None:
            return Done()
        works, self._num_known = len(self.looked_up) > self._num_known, len(self.looked_up)
        return await self._heard(await self.user.say(text, works=works))

    async def _heard(self, said: Said) -> str | Done:
        """Return the user's message.

        The episode ends at a goodbye. A model's goodbye only counts if the customer was served or
        it is the second one.
        """
        if said.leaving:
            self._goodbyes += 1
            if self._goodbyes > 1 or self.cfg.user is None or await self.is_served():
                return Done()
        return said.text

    @read
    async def calculate(self, expression: str) -> str:
        """Calculate a sum."""
        return calculated(expression)

    # Commitments of the assistant.

    @tool()
    async def confirm(self, action: str, arguments: dict[str, Any]) -> str | Done:
        """Ask the customer for a yes to one change.

        Args:
            action: the tool that you will call
            arguments: of that call
        """
        if self.user is None:
            raise ToolError("nobody can be asked: the ticket is the customer's order")
        if self.calls_in_turn > 1:
            raise ToolError("the customer was not asked; make no other call in a turn with confirm")
        spec = tools_of(type(self)).get(action)
        if spec is None or not spec.writes or action == "transfer":
            raise ToolError(f"{action!r} is no tool that changes something")
        asked: Action = {"name": action, "arguments": spec.parse(arguments)}
        self._commit()
        said = await self.user.confirm(asked, self._is_wanted)
        self._agreed = asked if said.agrees else None
        return await self._heard(said)

    @tool()
    async def refuse(self, reason: str) -> str | Done:
        """Tell the customer no.

        Args:
            reason: the name of what forbids it
        """
        if reason not in self.reasons:
            raise ToolError(f"there is no reason {reason!r}; there are {', '.join(self.reasons)}")
        self._commit()
        self.refusals.append(reason)
        if not any(reason in each["reasons"] for each in ever_wanted(self.goal)):
            self.faults["false_refusal"] += 1
        if self.user is None:
            return Done()
        return await self._heard(await self.user.refused(self.reasons[reason]))

    @tool()
    async def tell(self, value: str) -> str | Done:
        """Answer the customer's question.

        Args:
            value: one value; a wrong one counts
        """
        self._commit()
        wanted = [v for each in settled_by(self.goal) for v in each["outputs"]]
        right = next((v for v in wanted if is_value(value, v)), None)
        if right is None:
            self.faults["false_answer"] += 1
        else:
            self.told.add(right)
        if self.user is None:
            return "told"
        return await self._heard(await self.user.told(value if right is None else right))

    @write
    async def transfer(self, summary: str) -> Done:
        """Hand over to a human."""
        self.transferred = True
        return Done()

    def _commit(self) -> None:
        """Count a commitment, and a fault if the customer is not identified yet."""
        if not self.is_identified():
            self.faults["unidentified"] += 1

    def note_write(self, made: Action, *, agreed: bool) -> None:
        """Record a write that was made and notify the customer."""
        self._commit()
        self.done.append(made)
        if self.user is None or made["name"] == "transfer":
            return
        self._agreed = None
        if not agreed:
            self.faults["unconfirmed"] += 1
        self.user.got(agreed=agreed)

    async def is_agreed(self, write: Action) -> bool:
        """Return whether the customer has agreed to the effect of a write."""
        return self._agreed is not None and await self._do_the_same(write, self._agreed)

    async def _is_wanted(self, asked: Action, want: Want) -> bool:
        """Return whether a write has the effect that the customer wants, whatever its arguments."""
        return want["write"] is not None and await self._do_the_same(asked, want["write"])

    async def _do_the_same(self, one: Action, other: Action) -> bool:
        """Return whether two writes would change the records alike, also with reordered ids."""
        if one == other:
            return True
        try:
            return (await self._after(one)).is_same(await self._after(other))
        except ToolError:
            return False

    async def _after(self, made: Action) -> Store:
        """Return the records after a hypothetical write."""
        other = type(self)(self.scenario, self.cfg)
        other.store = self.store.copy()
        await other.act(made)
        return other.store

    async def act(self, action: Action) -> Any:
        """Call a tool as the model would. Raises ToolError where it refuses."""
        spec = tools_of(type(self)).get(action["name"])
        if spec is None:
            raise ToolError(f"there is no tool {action['name']!r}")
        return await getattr(self, spec.name)(**spec.parse(action["arguments"]))

    async def is_served(self) -> bool:
        """Return whether all required actions, refusals and values were given, and no others."""
        raise NotImplementedError


def text_of(action: Action) -> str:
    """Return a canonical text of an action on one line."""
    return f"{action['name']}({json.dumps(action['arguments'], sort_keys=True)})"
