"""A customer's goal, and the right way to serve them: plain JSON, the data of a scenario.

The user simulators and the score are both made from it; nothing of it but `opening` is ever
shown to the model unasked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict

Kind = Literal[
    "one", "several", "conditional", "fallback", "refused", "partly", "information", "transfer"
]

# The share of each kind, in percent, where a level has them all. In most scenarios the policy
# forbids something: an assistant that does whatever it is asked to serves fewer than 40 percent.
MIX: dict[Kind, int] = {
    "one": 11,  # one write
    "several": 10,  # two or more
    "conditional": 10,  # "if X cannot be done, then Y", and X can
    "fallback": 10,  # the same, and X cannot
    "refused": 11,
    "partly": 43,  # one thing must be refused, the others may be done
    "information": 3,
    "transfer": 2,
}
# The kinds of each level; a kind that is named twice has twice its share.
KINDS: dict[int, tuple[Kind, ...]] = {
    **dict.fromkeys(range(6), tuple(MIX)),
    1: ("one", "refused", "refused"),
}

# The share of each kind whose customers change their mind, from level MINDS_FROM on.
MINDS: dict[Kind, float] = {
    "one": 0.6,
    "several": 0.4,
    "conditional": 0.4,
    "fallback": 0.3,
    "refused": 0.25,
    "partly": 0.2,
}
MINDS_FROM = 3

DONE = "It is done."
KEPT = "Then it stays as it is."  # to customers who want no change after all
COMMITMENTS = ("confirm", "refuse", "tell")  # tools of every desk, beside its own


class Action(TypedDict):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


def call(name: str, **arguments: Any) -> Action:
    """Return a call of a tool."""
    return {"name": name, "arguments": arguments}


def confirm(write: Action) -> Action:
    """Return the question for a yes to a write."""
    return call("confirm", action=write["name"], arguments=write["arguments"])


class Want(TypedDict):
    """One thing that a customer wants, and what is right to do about it.

    It is granted by its write and its outputs, or, where `reasons` says so, refused.
    """

    words: str  # said when it is its turn
    write: Action | None  # what they say yes to; None: a question
    reasons: list[str]  # why it must be refused: each is true, one is enough; empty: it is granted
    outputs: list[str]  # values that they must be told
    pressure: list[str]  # said in turn after a refusal: each must be refused again
    otherwise: Want | None  # what they want instead once it is refused
    # What they want instead as soon as they are asked to confirm; it may change once more. Only
    # what would be granted has one. Without a write and an output it is nothing at all.
    rather: Want | None


def want(words: str, write: Action | None = None) -> Want:
    """Return something that is wanted, and granted."""
    return {
        "words": words,
        "write": write,
        "reasons": [],
        "outputs": [],
        "pressure": [],
        "otherwise": None,
        "rather": None,
    }


class Goal(TypedDict):
    """One customer."""

    kind: Kind
    user_id: str  # splits share no user
    opening: str  # the ticket at level 0, else the user's first words
    facts: dict[str, str]  # slot of `asking.SLOTS` -> what is true, whether or not they know it
    may_reveal: list[str]  # the slots that they know and tell when asked
    wants: list[Want]  # the first is said in the opening, each other when one is settled
    script: list[str | Action]  # the right conversation: what to say, what to call, in order
    remark: str  # the facts that the decision follows from; a demonstration says them before it
    temptation: list[Action]  # what an assistant without the policy would do; empty: nothing else
    evidence: list[list[str]]  # [table, id] of what must be looked up


def settled_by(goal: Goal) -> Iterator[Want]:
    """Yield what the customer wants in the end: each must be granted, or refused for good."""
    for each in goal["wants"]:
        final, then = each, each
        while then:
            final = then
            then = final["rather"] or (final["otherwise"] if final["reasons"] else None)
        yield final


def ever_wanted(goal: Goal) -> Iterator[Want]:
    """Yield all that the customer may ask for on the way."""
    waiting = list(goal["wants"])
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [w for w in (each["otherwise"], each["rather"]) if w]


def minds(goal: Goal) -> list[Want]:
    """Return the wants that the customer thinks better of when asked to confirm them."""
    return [each for each in ever_wanted(goal) if each["rather"]]
