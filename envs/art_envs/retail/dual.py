"""The env: a shop where some things can be done by the customer alone, who must be asked to.

Something does not work. What is right follows from the policy and from what the customer reports:
they mend it themselves, the shop replaces it once they have read its label and accepted the return,
or it is not replaced. An episode is judged by both worlds: the database, and what the customer did.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from art_cli import Done, Scenario, ToolError, Trajectory, tool
from art_envs.retail import policy
from art_envs.retail.data import SCALES
from art_envs.retail.desk import OK, RetailDesk
from art_envs.retail.hands import (
    ACCEPT,
    ASKS,
    LOOK,
    READING,
    REASONS,
    RULES,
    THINGS,
    Ask,
    Hands,
    Thing,
    ask_for,
    draw_thing,
    right_asks,
)
from art_envs.retail.scenarios import Sampler
from art_envs.retail.wishes import Wish, in_dollars
from art_envs.service.desk import ServiceDesk
from art_envs.service.episode import ForbiddenError, Size, write
from art_envs.service.goal import DONE, MINDS_FROM, Action, Goal, Kind, call
from art_envs.service.store import Record

DualKind = Literal["one", "refused", "several"]
# Each as often as its share; the last from level 2 on.
KINDS: tuple[DualKind, ...] = ("one", "one", "one", "refused", "several", "several")
MINDS = 0.6  # share of those who can change their mind that do
COMPLAINTS = ("does not work", "has stopped working", "does nothing any more")


class DualGoal(Goal):
    """A customer with something in their hands."""

    thing: Thing


class DualDesk(RetailDesk):
    """A shop's customer service that must have customers do what only they can do."""

    @dataclass(frozen=True, kw_only=True)
    class Config(RetailDesk.Config):
        """Settings of `env.args`: those of `retail`, without tickets: nobody could be asked."""

        level: Literal[1, 2, 3, 4] = 2
        kinds: tuple[DualKind, ...] = ()

    reasons = policy.REASONS | REASONS

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.thing: Thing = scenario.data["goal"]["thing"]
        self.hands = Hands(self.thing)
        self.asked: list[Ask] = []  # of the customer, in order
        self.needless = 0  # how many of these the policy did not ask for

    @classmethod
    def kinds(cls, cfg: ServiceDesk.Config) -> tuple[Kind, ...]:
        return cfg.kinds or KINDS[: None if cfg.level > 1 else 4]

    @classmethod
    def draw_goal(
        cls, cfg: ServiceDesk.Config, rng: random.Random, user_id: str, kind: Kind
    ) -> Goal | None:
        tables, scale = cls.database(cfg), SCALES[cfg.size]
        sampler = DualSampler(rng, tables, tables["users"][user_id], cfg.level, scale)
        return sampler.with_thing(kind, cfg.size)

    @classmethod
    def policy(cls, cfg: ServiceDesk.Config) -> str:
        return RULES[cfg.size]

    # Both worlds.

    @tool(writes=True)
    async def ask_customer(self, action: Ask) -> str | Done:
        """Have the customer do what only they can do, and hear what came of it."""
        self._commit()
        report = self.hands.do(action)
        self.store.seen.add(("customer", action))
        self.asked.append(action)
        self.needless += not report.is_due
        if report.is_due:
            self.looked_up.add(f"{len(self.asked)} {action}")
        if self.user is None:  # nobody hears what is tried out
            return report.text
        return await self._heard(await self.user.did(action, report))

    @write
    async def replace_item(self, order_id: str, item_id: str, serial: str) -> str:
        """Send the same item again; the old one comes back.

        Args:
            serial: the number on the label of the old one
        """
        self._check(policy.against_replacement(self._get("orders", order_id), item_id))
        if item_id != self.thing["item_id"] or ACCEPT not in self.hands.done:
            raise ForbiddenError("the customer has not accepted a return label for this item")
        if serial != self.thing["serial"]:
            raise ToolError(f"{serial!r} is not the serial number of this item")
        order = self.store.edit("orders", order_id)
        order |= {"status": policy.REPLACING, "replaced": [item_id]}
        return OK

    # The score.

    @classmethod
    def is_write(cls, action: Action) -> bool:
        return super().is_write(action) and action["arguments"].get("action") not in READING

    def is_like(self, other: ServiceDesk) -> bool:
        assert isinstance(other, DualDesk)
        return super().is_like(other) and self.hands.state == other.hands.state

    async def score(self, trajectory: Trajectory) -> float:
        earned = await super().score(trajectory)
        self.metrics["needless_asks"] = self.needless
        return earned

    async def judge_context(self) -> str:
        asked = f"{', '.join(self.asked) or 'nothing'}; without need: {self.needless}"
        return f"{await super().judge_context()}\nAsked of the customer: {asked}"

    # Demonstrations.

    def _decision(self) -> int:
        """Return where the script begins to ask for what the customer must do."""
        return self.goal["script"].index(ask_for(LOOK))

    def _guess(self, rng: random.Random, right: Sequence[str | Action]) -> Sequence[str | Action]:
        """Return the rest of the script with something wrong in it: an ask, or a refusal."""
        at = rng.randrange(len(right))
        if rng.random() < 0.3:
            return [*right[:at], call("refuse", reason=rng.choice(list(self.reasons))), DONE]
        return [*right[:at], ask_for(rng.choice(ASKS)), *right[at:]]


class DualSampler(Sampler):
    """Draws a goal of a user with something in their hands, and maybe another wish after it."""

    def with_thing(self, kind: Kind, size: Size) -> DualGoal | None:
        """Return None where the user has nothing that fits this kind."""
        order = self._rng.choice(self._orders)
        item = self._rng.choice(order["items"])
        if item["name"] not in THINGS or policy.against_replacement(order, item["item_id"]):
            return None
        if self._level > 1 and item["name"] not in self._landmarks(order):
            return None
        thing = draw_thing(self._rng, item["item_id"], item["price"], size)
        asks, verdict = right_asks(thing)
        if (kind == "refused") != (verdict in REASONS):
            return None
        wish = self._wish_about(order, item, thing, asks, verdict)
        others: list[Wish | None] = []
        if kind == "several":
            others = [self._question() if self._rng.random() < 0.3 else self._wish(False)]
        wishes = [wish, *others]
        if self._level >= MINDS_FROM and self._rng.random() < MINDS:
            if others and others[0] and others[0].write:
                wishes = [wish, *self._minds.changed(others)]
            elif verdict == "replace":  # it is delivered: what they want in its place is refused
                wishes = [self._minds.forbidden(wish, back=True), *others]
        goal = self._told(kind, wishes)
        temptation = wish.temptation or (goal["temptation"] if goal else [])
        return goal and {**goal, "temptation": temptation, "thing": thing}

    def _wish_about(
        self, order: Record, item: Record, thing: Thing, asks: list[Ask], verdict: str
    ) -> Wish:
        id, name = order["order_id"], item["name"]
        where = " that I ordered" if self._level > 1 else f" of {self._reference(order)}"
        said = f"The {name}{where} {self._rng.choice(COMPLAINTS)}. Please replace it."
        replace = call("replace_item", order_id=id, item_id=item["item_id"], serial=thing["serial"])
        self._spoken_of.add(id)
        return Wish(
            verb="replace",
            said=said,
            brief=said,
            reads=[call("get_order", order_id=id)],
            asks=[ask_for(ask) for ask in asks],
            write=replace,
            is_mended=verdict == "mended",
            temptation=[] if verdict == "replace" else [*[ask_for(ACCEPT)] * 2, replace],
            remark=f"The {name} cost {in_dollars(item['price'])}.",
            reasons=[verdict] if verdict in REASONS else [],
            evidence=[["customer", ask] for ask in READING if ask in asks],
            records={id},
        )
