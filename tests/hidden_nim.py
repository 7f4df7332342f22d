"""Nim whose heap only a tool tells, and another one takes from."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice

from counting import call

from art_cli import Message, Scenario, play, seed_of, tool
from art_envs.nim import Nim


class HiddenNim(Nim):
    """Who does not look can only guess; half of the demonstrated moves are guesses."""

    system = "You play Nim. Look at the heap and take 1, 2 or 3; who takes the last one wins."

    def __init__(self, scenario: Scenario, cfg: Nim.Config) -> None:
        super().__init__(scenario, cfg)
        self.looks = dict.fromkeys(self.seats, 0)
        self.moves = dict.fromkeys(self.seats, 0)

    async def observe(self, seat: str) -> str:
        """Nothing."""
        return "Your turn."

    @tool()
    async def look(self) -> str:
        """Look at the heap."""
        assert self.turn
        self.looks[self.turn] += 1
        return f"{self.left} left"

    @tool(writes=True)
    async def take(self, number: int) -> None:
        """Take so many."""
        assert self.turn
        self.moves[self.turn] += 1
        await self.move(self.turn, f"take {number}")

    async def metrics_of(self, seat: str) -> dict[str, float]:
        """And how many looks a move had."""
        looks = {"looks": self.looks[seat] / self.moves[seat]} if self.moves[seat] else {}
        return await super().metrics_of(seat) | looks

    @classmethod
    def demonstrations(cls, cfg: Nim.Config, num: int) -> Iterable[list[Message]]:
        """Moves behind a look, three of four at random, and guesses."""
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env, rng = cls(scenario, cfg), random.Random(seed_of("demonstration", scenario.id))
            yield play(env, env._turns(rng).__next__)

    def _turns(self, rng: random.Random) -> Iterator[str]:
        while True:
            most = self.most
            if rng.random() < 0.5:
                yield call("look")
                most = min(most, self.left)
            best = rng.random() > self.cfg.demo_noise
            number = self.left % (self.most + 1) or 1 if best else rng.randint(1, most)
            yield call("take", number=number)
