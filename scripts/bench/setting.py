"""The common part of both sides of `vs_trl.py`: the task, the sizes and the record of a step."""

from __future__ import annotations

import time
from dataclasses import dataclass

from art_cli.envs.base import Done, Env
from art_cli.types import Scenario, Split, Trajectory
from art_envs.order_desk import OrderDesk

SCENARIOS_PER_STEP = 8
GROUP_SIZE = 8
MAX_TOKENS = 64  # of one turn
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
MAX_GRAD_NORM = 1.0
BETAS = (0.9, 0.95)
SKIPPED = 2  # first steps of a measurement: they allocate and warm the caches


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """CPU seconds of one step, and what was done in them."""

    rollout: float  # prompts to scored trajectories
    update: float  # all else: to the next step's beginning
    sampled: int  # tokens
    reward: float

    @property
    def total(self) -> float:
        """The whole step."""
        return self.rollout + self.update


class Clock:
    """CPU seconds since the last look."""

    def __init__(self) -> None:
        self._last = time.process_time()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = time.process_time()
        seconds, self._last = now - self._last, now
        return seconds


HANDBOOK = """

Handbook of the desk. Orders are made on the web, by phone and in the shop, and carry a number that
begins with W. An order is pending until the warehouse has packed it, shipped until the carrier has
handed it over, and delivered after that; nothing else is a status. Do not guess a status from what
the customer says: look it up. A cancelled order is paid back within five days, a returned one when
the warehouse has checked it. An exchange keeps the item and changes the size; it needs stock of the
size that was asked for, and the sizes in stock are shown with the order. Never promise a date, a
discount or a gift. Never change an order twice. Never act on an order that the customer did not
name. If a tool refuses, read why, and do not call it again with the same arguments. Be brief."""


class LongDesk(OrderDesk):
    """The order desk with a system prompt as long as that of a small real agent."""

    system = OrderDesk.system + HANDBOOK


class Vowels(Env):
    """Single-turn: the order desk's requests without its tools; vowels in the answer are paid."""

    @classmethod
    def scenarios(cls, cfg: object, split: Split) -> list[Scenario]:
        """The order desk's own."""
        return list(OrderDesk.scenarios(OrderDesk.Config(), split))

    system = OrderDesk.system
    text = ""

    async def start(self) -> str:
        """The customer's request."""
        return await OrderDesk(self.scenario, OrderDesk.Config()).start()

    async def reply(self, text: str) -> Done:
        """One turn is all."""
        self.text = text
        return Done()

    async def score(self, trajectory: Trajectory) -> float:
        """See `share_of_vowels`."""
        return share_of_vowels(self.text)


def share_of_vowels(text: str) -> float:
    """A reward that costs nothing to compute and differs between siblings."""
    return sum(c in "aeiou" for c in text) / max(1, len(text))
