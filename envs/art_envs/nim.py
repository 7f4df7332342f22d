"""Nim with one heap: two players take one to three in turn, and who takes the last one wins.

    first       13 are left.      assistant   take 1
    second      12 are left.      assistant   take 3
    first       9 are left.       assistant   take 1

Who leaves a multiple of four behind wins whatever the other does, and which seat can do so depends
on the heap. The smallest game to learn by self-play: `env: {use: nim, opponents: {}}`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from art_cli import Game, Message, Scenario, play, seed_of

ANSWER = re.compile(r"\s*take\s+([0-9]{1,2})\s*")


class Nim(Game):
    """Nim with one heap, of two seats: take one to three; who takes the last one wins."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Settings of `env.args`."""

        smallest: Annotated[int, Field(ge=4, le=90)] = 5  # initial heap
        largest: Annotated[int, Field(ge=4, le=90)] = 12
        script: Literal["random", "perfect"] = "random"  # who plays where no other opponent does
        # Share of demonstrated moves that are random: SFT teaches how to speak and a little
        # of how to play, and leaves the rest to be learned by reward.
        demo_noise: Annotated[float, Field(ge=0, le=1)] = 0.75

        def __post_init__(self) -> None:
            """Raise ValueError if no initial heap is possible."""
            if self.smallest > self.largest:
                raise ValueError(f"smallest ({self.smallest}) is more than largest")

    seats = ("first", "second")
    most = 3  # that a player may take
    max_turns = 90
    system = (
        "You play Nim. Take 1, 2 or 3 from the heap when it is your turn; who takes the last one "
        "wins. Answer with your move alone, for example\ntake 2"
    )

    def __init__(self, scenario: Scenario, cfg: Config) -> None:
        super().__init__(scenario, cfg)
        self.left = self.rng.randint(cfg.smallest, cfg.largest)
        self.won = "first" if self.left % (self.most + 1) else "second"  # whoever plays well
        self.winner: str | None = None
        self.illegal: str | None = None  # the seat that broke the rules and lost

    async def observe(self, seat: str) -> str:
        """Return the size of the heap, which is the whole state."""
        return f"{self.left} are left."

    async def move(self, seat: str, text: str) -> None:
        """Take objects from the heap; an illegal move loses."""
        answer = ANSWER.fullmatch(text)
        number = int(answer.group(1)) if answer else 0
        self.turn = self.other(seat)
        if not 1 <= number <= min(self.most, self.left):
            self.illegal, self.winner, self.turn = seat, self.other(seat), None
            return
        self.left -= number
        if not self.left:
            self.winner, self.turn = seat, None

    async def reward(self, seat: str) -> float:
        """Return 1 for a win, 0 for a loss, -0.5 for an illegal move."""
        if seat == self.illegal:
            return -0.5
        return float(self._winner() == seat)

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """Return the outcome for a seat."""
        won = float(self._winner() == seat)
        return {"success": won, "illegal": float(self.illegal == seat)}

    async def script(self, seat: str) -> str:
        """Return a legal move: at random, or the best one where there is one."""
        best = self.left % (self.most + 1)
        if self.cfg.script == "perfect" and best:
            return f"take {best}"
        return f"take {self.rng.randint(1, min(self.most, self.left))}"

    def gold(self) -> Iterator[str] | None:
        """Return moves that leave multiples of four, or None if the opponent can win."""
        return self._best_moves() if self.seat == self.won else None

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Legal moves, mostly at random: how to answer, and little of how to win."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            rng = random.Random(seed_of("demonstration", scenario.id))
            yield play(env, env._noisy_moves(rng).__next__)

    def _winner(self) -> str | None:
        return self.winner or (self.other(self.turn) if self.turn else None)

    def _best_moves(self) -> Iterator[str]:
        while True:
            yield f"take {self.left % (self.most + 1) or 1}"

    def _noisy_moves(self, rng: random.Random) -> Iterator[str]:
        best = self._best_moves()
        while True:
            at_random = rng.random() < self.cfg.demo_noise
            number = rng.randint(1, min(self.most, self.left))
            yield f"take {number}" if at_random else next(best)
