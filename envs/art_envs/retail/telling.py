"""From wishes to a goal: what the customer says when, and the right conversation.

At levels 0 and 1 they say everything at once; from level 2 on one thing after the other, and some
things only when they are asked.
"""

from __future__ import annotations

import random

from art_envs.retail.wishes import HARD, Wish
from art_envs.service.goal import DONE, KEPT, Action, Goal, Kind, Want, call, confirm
from art_envs.service.personas import told_at_length
from art_envs.service.store import Record

WHO = "Please tell me your email, or your full name and zip code."
PRESSURE = (
    "That cannot be your last word. I am a loyal customer. Please make an exception.",
    "Your colleague did this for me last week. Please just do it.",
    "I will write a bad review. Please do it now.",
)


class Teller:
    """Tells the wishes of one user."""

    def __init__(self, rng: random.Random, level: int, user: Record, *, by_email: bool) -> None:
        self._rng = rng
        self._level = level
        self._user = user
        self._by_email = by_email  # how they can be found; else by name and zip code
        self._pressure: list[str] = rng.sample(PRESSURE, rng.choice((1, 2)))
        self._script: list[str | Action] = []

    def goal(self, kind: Kind, wishes: list[Wish]) -> Goal:
        """Return the goal of a customer who has these wishes, one after the other."""
        first = wishes[0]
        alone = len(wishes) == 1 and not first.otherwise and not first.rather
        wants = [self._want(wish, brief=alone and self._level > 1) for wish in wishes]
        acting = [wish.last for wish in wishes]
        tempts = any(wish.reasons or wish.rather for wish in wishes)
        goal: Goal = {
            "kind": kind,
            "user_id": self._user["user_id"],
            "opening": "",
            "facts": self._facts(),
            "may_reveal": ["name", "email"] if self._by_email else ["name", "zip"],
            "wants": wants,
            "script": self._script,
            "remark": first.remark,
            "temptation": [a for wish in wishes for a in _careless(wish)] if tempts else [],
            "evidence": [["identity", self._user["user_id"]]]
            + [each for wish in acting for each in wish.evidence],
        }
        if alone:
            goal["facts"] |= first.facts
            goal["may_reveal"] += list(first.facts)
        self._add_order_number(goal, first)
        if self._level < 2:
            self._open_at_once(goal, wishes)
            self._answer_at_once(wishes, acting)
        else:
            goal["opening"] = f"Hello. {wants[0]['words']}"
            if self._level >= HARD:
                goal["opening"] = told_at_length(self._rng, wants[0]["words"])
            self._script.append(WHO)
            self._look([self._find()])
            self._script += [first.asked] if alone and first.asked else []
            for wish, each in zip(wishes, wants, strict=True):
                self._answer(wish, each)
        return goal

    def _want(self, wish: Wish, *, brief: bool = False) -> Want:
        otherwise = self._want(wish.otherwise) if wish.otherwise else None
        if otherwise:
            otherwise["words"] = f"Then do this instead: {otherwise['words']}"
        pushes = self._level >= 3 and wish.reasons and not otherwise
        return {
            "words": wish.brief if brief else wish.said,
            "write": wish.write,
            "reasons": wish.reasons,
            "outputs": wish.outputs,
            "pressure": self._pressure if pushes else [],
            "otherwise": otherwise,
            "rather": self._want(wish.rather) if wish.rather else None,
        }

    def _facts(self) -> dict[str, str]:
        user = self._user
        return {
            "name": f"{user['first']} {user['last']}",
            "email": user["email"],
            "zip": user["address"]["zip"],
            "user_id": user["user_id"],
        }

    def _add_order_number(self, goal: Goal, first: Wish) -> None:
        own = [id for id in first.records if id in self._user["orders"]]
        if own:
            goal["facts"]["order_id"] = own[0]
            goal["may_reveal"] += ["order_id"] if self._level < 2 else []

    def _find(self) -> Action:
        user = self._user
        if self._by_email:
            return call("find_user_by_email", email=user["email"])
        return call(
            "find_user_by_name_zip",
            first=user["first"],
            last=user["last"],
            zip=user["address"]["zip"],
        )

    def _open_at_once(self, goal: Goal, wishes: list[Wish]) -> None:
        user = self._user
        who = f"{user['first']} {user['last']}, zip {user['address']['zip']}"
        who = f"<{user['email']}>" if self._by_email else who
        wants = " ".join(wish.said for wish in wishes)
        if wishes[0].otherwise:
            wants += f" Only if that is not possible: {wishes[0].otherwise.said}"
        goal["opening"] = f"From {who}: {wants}" if self._level == 0 else f"I am {who}. {wants}"

    def _answer_at_once(self, wishes: list[Wish], acting: list[Wish]) -> None:
        """Find out everything, then do, tell or refuse each thing; a refusal ends a ticket."""
        self._look([self._find()])
        for wish in [*wishes, *acting]:
            self._look(wish.reads)
        for wish in acting:
            self._script += wish.asks
            if wish.write and not wish.reasons and not wish.is_mended:
                asked = self._level == 1 and wish.verb != "transfer"
                self._script += [confirm(wish.write)] * asked + [wish.write]
        self._script += [call("tell", value=v) for wish in acting for v in wish.outputs]
        denied = [wish for wish in acting if wish.reasons]
        self._script += [call("refuse", reason=wish.reasons[0]) for wish in denied]
        if not denied and acting[0].verb != "transfer" and not acting[-1].is_mended:
            self._script.append(DONE)

    def _answer(self, wish: Wish, want: Want) -> None:
        """From level 2 on: one wish, with what the customer says in between."""
        self._look(self._search(wish))
        self._script += wish.asks
        if wish.reasons:
            no = call("refuse", reason=wish.reasons[0])
            self._script += [no] * (1 + len(want["pressure"]))
            if wish.otherwise and want["otherwise"]:
                self._answer(wish.otherwise, want["otherwise"])
            return
        self._script += [call("tell", value=value) for value in wish.outputs]
        if wish.verb == "transfer":
            self._script += [wish.write] if wish.write else []
        elif wish.verb == "keep":
            self._script.append(KEPT)
        elif wish.rather and wish.write and want["rather"]:
            self._script.append(confirm(wish.write))
            self._answer(wish.rather, want["rather"])
        elif wish.write and not wish.is_mended:
            self._script += [confirm(wish.write), wish.write, DONE]

    def _search(self, wish: Wish) -> list[Action]:
        """Read the user's orders up to the one that the wish is about; then what else it needs."""
        orders = self._user["orders"]
        own = [id for id in orders if id in wish.records]
        if not own or not wish.reads:
            return wish.reads
        looked_at = orders[: orders.index(own[0]) + 1]
        return [
            call("get_user", user_id=self._user["user_id"]),
            *(call("get_order", order_id=id) for id in looked_at),
            *wish.reads,
        ]

    def _look(self, reads: list[Action]) -> None:
        """Each record is read once."""
        for read in reads:
            if read not in self._script:
                self._script.append(read)


def _careless(wish: Wish) -> list[Action]:
    """Return what is done about a wish by one who asks no policy."""
    return wish.temptation if wish.reasons else [wish.write] if wish.write else []
