"""A customer's goal and the correct way to serve it: plain JSON, the data of a scenario.

The user simulators and the score are derived from it. The model never sees any of it unasked,
except `opening`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypedDict

Kind = Literal[
    "one", "several", "conditional", "fallback", "refused", "partly", "information", "transfer"
]

# The share of each kind, in percent, in a level that has all kinds. In most scenarios the policy
# forbids something: an assistant that does everything it is asked to serves fewer than 40 percent.
MIX: dict[Kind, int] = {
    "one": 11,  # one write
    "several": 10,  # two or more
    "conditional": 10,  # "if X cannot be done, then Y", and X can
    "fallback": 10,  # the same request, but X cannot be done
    "refused": 11,
    "partly": 43,  # one wish must be refused, the others may be granted
    "information": 3,
    "transfer": 2,
}
# The kinds of each level. A kind that is listed twice has twice its share.
KINDS: dict[int, tuple[Kind, ...]] = {
    **dict.fromkeys(range(6), tuple(MIX)),
    1: ("one", "refused", "refused"),
}

# The share of customers of each kind who change their mind, from level MINDS_FROM on.
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
KEPT = "Then it stays as it is."  # for customers who finally want no change
COMMITMENTS = ("confirm", "refuse", "tell")  # tools of every desk, besides the domain's own


class Action(TypedDict):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


def call(name: str, **arguments: Any) -> Action:
    """Return a call of a tool."""
    return {"name": name, "arguments": arguments}


def confirm(write: Action) -> Action:
    """Return the call that asks the customer to agree to a write."""
    return call("confirm", action=write["name"], arguments=write["arguments"])


class Want(TypedDict):
    """A wish of a customer, and the right response to it.

    It is granted with its write and its outputs, or refused if `reasons` is not empty.
    """

    words: str  # the customer's message when it is the wish's turn
    write: Action | None  # the write to agree to; None: a question
    reasons: list[str]  # true reasons to refuse it, any of which is enough; empty: it is granted
    outputs: list[str]  # values that the customer must be told
    pressure: list[str]  # messages after each refusal, which must be refused again
    otherwise: Want | None  # the wish that replaces it after a refusal
    # The wish that replaces it as soon as the customer is asked to confirm; it may be replaced once
    # more. Only a wish that would be granted has one. Without a write and an output, the customer
    # wants no change.
    rather: Want | None


def want(words: str, write: Action | None = None) -> Want:
    """Return a wish that is granted."""
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
    """A customer with their wishes and the correct conversation."""

    kind: Kind
    user_id: str  # no user is in two splits
    opening: str  # the ticket at level 0, otherwise the user's first message
    facts: dict[str, str]  # slot of `asking.SLOTS` -> what is true, whether or not they know it
    may_reveal: list[str]  # the slots that the user knows and tells when asked
    wants: list[Want]  # the opening has the first; each other follows when one is settled
    script: list[str | Action]  # the correct conversation: messages and calls in order
    remark: str  # facts behind the decision; a demonstration states them first
    temptation: list[Action]  # the actions of an assistant without the policy; empty: no difference
    evidence: list[list[str]]  # [table, id] of records that must be looked up


def settled_by(goal: Goal) -> Iterator[Want]:
    """Yield the wishes that hold in the end: each must be granted or finally refused."""
    for each in goal["wants"]:
        final, then = each, each
        while then:
            final = then
            then = final["rather"] or (final["otherwise"] if final["reasons"] else None)
        yield final


def ever_wanted(goal: Goal) -> Iterator[Want]:
    """Yield all wishes that the customer may express during the episode."""
    waiting = list(goal["wants"])
    while waiting:
        each = waiting.pop()
        yield each
        waiting += [w for w in (each["otherwise"], each["rather"]) if w]


def minds(goal: Goal) -> list[Want]:
    """Return the wishes that the customer replaces when asked to confirm them."""
    return [each for each in ever_wanted(goal) if each["rather"]]
