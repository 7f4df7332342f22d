"""Guess a number: the smallest task of several turns. Change it into yours.

One episode, as a good player plays it:

    user        My number is from 1 to 15.
    assistant   8
    user        higher: from 9 to 15.
    assistant   12
    ...                                   until it is found, or four guesses are used up
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from art_cli import Done, Env, Message, Trajectory, play


class GuessNumber(Env):
    """Find a hidden number in four guesses."""

    @dataclass(frozen=True)
    class Config:
        """Settings of `env.args` in config.yaml; types are checked, unknown keys refused."""

        biggest: int = 15  # who always halves the range finds one of 15 in four guesses

    system = "Find my number. Answer with a number only."
    max_turns = 4  # the episode ends after so many answers of the model

    async def start(self) -> str:
        """One object is one episode; its state is in `self`. Returns what the model reads first.

        Draw what is random from `self.rng`: an episode is played several times, and the plays are
        compared with each other, so all of them must meet the same task.
        """
        self.low, self.high = 1, self.cfg.biggest
        self.secret = self.rng.randint(self.low, self.high)
        self.found = False
        return f"My number is from {self.low} to {self.high}."

    async def reply(self, text: str) -> str | Done:
        """Return what the model reads after its answer `text`; Done() ends the episode.

        The model may answer anything. An exception here counts as a bug of this file, not as a
        bad answer: such an episode is not trained on.
        """
        guess = int(text) if text.isascii() and text.isdigit() else 0
        if guess == self.secret:
            self.found = True
            return Done()
        if not self.low <= guess <= self.high:
            hint = "no"
        elif guess < self.secret:
            hint, self.low = "higher", guess + 1
        else:
            hint, self.high = "lower", guess - 1
        return f"{hint}: from {self.low} to {self.high}."

    async def score(self, trajectory: Trajectory) -> float:
        """The reward, here 0 to 1: all that training knows of what you want.

        Each halving of what is left earns the same, so that a play that came nearer than another
        is told from it. With 1 for found and 0 for not, luck would drown what there is to learn.
        """
        self.metrics["success"] = float(self.found)  # only logged: train/success, val/success
        left = 0 if self.found else self.high - self.low + 1
        return 1 - math.log(1 + left) / math.log(1 + self.cfg.biggest)

    def gold(self) -> Iterator[str]:
        """The turns of a perfect player; `art envs check` plays them."""
        while True:
            yield str((self.low + self.high) // 2)

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Episodes for SFT of a model that cannot speak yet.

        They show how to answer, not how to play well: that is left to be learned by reward.
        """
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            yield play(env, env._careless_guess)

    def _careless_guess(self) -> str:
        careless = self.rng.random() < 0.5
        low, high = (1, self.cfg.biggest) if careless else (self.low, self.high)
        return str(self.rng.randint(low, high))
