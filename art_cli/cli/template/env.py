"""Guess a number: the smallest task with several turns. Change it into yours.

One episode, as a good player plays it:

    user        My number is from 1 to 31.
    assistant   16
    user        higher: from 17 to 31.
    assistant   24
    ...                                   until the number is found, or five guesses are used up
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from art_cli import Done, Env, Message, Trajectory, play


class GuessNumber(Env):
    """Find a hidden number in five guesses."""

    @dataclass(frozen=True)
    class Config:
        """What `env.args` in config.yaml may set; types are checked, unknown keys refused."""

        biggest: int = 31  # always halving the range finds one of 31 in five guesses

    system = "Find my number. Answer with a number only."
    max_turns = 5  # the episode ends after so many answers of the model

    async def start(self) -> str:
        """One instance is one episode: keep its state in `self`. Returns what the model reads.

        Draw whatever is random from `self.rng`: the copies of an episode that GRPO compares with
        each other must all play the same one.
        """
        self.low, self.high = 1, self.cfg.biggest
        self.secret = self.rng.randint(self.low, self.high)
        self.found = False
        return f"My number is from {self.low} to {self.high}."

    async def reply(self, text: str) -> str | Done:
        """What the model reads after its answer `text`; Done() ends the episode.

        The model may answer anything. What you raise counts as a bug of this file, not as a bad
        answer: such an episode is not trained on.
        """
        guess = int(text) if text.isascii() and text.isdigit() else 0
        self.found = guess == self.secret
        if self.found:
            return Done()
        if not self.low <= guess <= self.high:
            return f"no: from {self.low} to {self.high}."
        if guess < self.secret:
            self.low = guess + 1
            return f"higher: from {self.low} to {self.high}."
        self.high = guess - 1
        return f"lower: from {self.low} to {self.high}."

    async def score(self, trajectory: Trajectory) -> float:
        """The reward, here from 0 to 1. It is all that training knows of what you want."""
        self.metrics["success"] = float(self.found)  # only logged, as train/success, val/success
        return float(self.found)

    @classmethod
    def demonstrations(cls, cfg: Config, num: int) -> Iterable[list[Message]]:
        """Episodes for the warm-up of a model that does not know the format yet.

        They guess at random within the range: how to answer is shown, to halve is left to learn.
        """
        for scenario in islice(cls.scenarios(cfg, "train"), num):
            env = cls(scenario, cfg)
            yield play(env, lambda env=env: str(env.rng.randint(env.low, env.high)))
