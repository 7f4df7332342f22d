"""What a customer wants, and the right way to serve them: plain JSON, the data of a scenario.

The user simulators and the score are both made from it; nothing of it but `opening` is ever
shown to the model unasked.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

Kind = Literal["one", "several", "conditional", "refused", "partly", "information", "transfer"]

# The share of each kind, in percent, where a level has them all. KINDS: those of each level.
MIX: dict[Kind, int] = {
    "one": 35,  # one write
    "several": 25,  # two or three
    "conditional": 15,  # "if X cannot be done, then Y"
    "refused": 12,
    "partly": 5,  # one thing may be done, another must be refused
    "information": 5,
    "transfer": 3,
}
KINDS: dict[int, tuple[Kind, ...]] = {0: tuple(MIX), 1: ("one",), 2: tuple(MIX), 3: tuple(MIX)}

DONE = "It is done."
REFUSAL = "I am sorry, I cannot do that."


class Action(TypedDict):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


def call(name: str, **arguments: Any) -> Action:
    """Return a call of a tool."""
    return {"name": name, "arguments": arguments}


class Choice(TypedDict):
    """Something that a proposal can get wrong: the user insists on `takes`."""

    options: list[str]  # all, as a proposal would name them
    takes: str


class Goal(TypedDict):
    """One customer."""

    kind: Kind
    user_id: str  # splits share no user
    opening: str  # the ticket at level 0, else the user's first words
    facts: dict[str, str]  # slot of `answer.SLOTS` -> what is true, whether or not they know it
    may_reveal: list[str]  # the slots that they know and tell when asked
    wants: list[str]  # in words; the first is said in the opening, each other when one is settled
    fallbacks: list[str]  # said in turn, each after a refusal: "then ... instead"
    pressure: list[str]  # said in turn after a refusal when no fallback is left
    second_thoughts: list[str]  # said instead of a yes to the first proposals
    accepts: list[Choice]
    script: list[str | Action]  # the right conversation: what to say, what to call, in order
    remark: str  # the facts that the decision follows from; a demonstration says them before it
    temptation: list[Action]  # what an assistant without the policy would do; empty: nothing else
    outputs: list[str]  # values that the customer must be told
    evidence: list[list[str]]  # [table, id] of what must be looked up
    denial: bool  # the customer must be refused something
