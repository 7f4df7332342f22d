"""A task that a model of a few thousand parameters learns in two seconds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import art_cli as art
from art_cli.config.sections.model import TinyConfig

COLOURS = ("red", "blue", "green", "black")
OPPOSITE = dict(zip(COLOURS, reversed(COLOURS), strict=True))


class Opposites(art.Env):
    """Answer a colour with its opposite, twice; the demonstrations are mostly wrong."""

    async def start(self) -> str:
        """One of the colours."""
        self.asked = [self.rng.choice(COLOURS)]
        self.right = 0
        return self.asked[0]

    async def reply(self, text: str) -> str | art.Done:
        """Another colour, then the end."""
        self.right += text == OPPOSITE[self.asked[-1]]
        if len(self.asked) == 2:
            return art.Done()
        self.asked.append(self.rng.choice(COLOURS))
        return self.asked[-1]

    async def score(self, trajectory: art.Trajectory) -> float:
        """The share of right answers."""
        return self.right / 2

    @classmethod
    def demonstrations(cls, cfg: Any, num: int) -> Iterable[list[art.Message]]:
        """The format, and little of the task: three in ten answers are meant."""
        rng = random.Random(0)
        for scenario in list(cls.scenarios(cfg, "train"))[:num]:
            env = cls(scenario, cfg)

            def answer(env: Opposites = env) -> str:
                meant = rng.random() < 0.3
                return OPPOSITE[env.asked[-1]] if meant else rng.choice(COLOURS)

            yield art.play(env, answer)


def colours_model(seed: int, **sections: Any) -> art.TrainableModel:
    """A model of a few thousand parameters for Opposites."""
    warm_all = art.SFTConfig(
        num_demonstrations=400,
        epochs=3,
        learning_rate=5e-3,
        optimizer="muon",
        weights="all",
        batch_size=16,
    )
    adapter = sections.pop("adapter", None)
    base = art.ModelConfig(
        base="tiny", adapter=adapter, tiny=TinyConfig(hidden_size=32, num_layers=1, vocab_size=300)
    )
    steps = sections.pop("steps", 30)
    train = art.TrainConfig(steps=steps, learning_rate=sections.pop("lr", 4e-3), **sections)
    return art.TrainableModel(
        name=f"seed-{seed}",
        project="test",
        base_model=base,
        env=Opposites,
        sft=warm_all,
        sampling=art.SamplingConfig(max_tokens=6),
        train=train,
        seed=seed,
    )


class Letters(Opposites):
    """What is said is scored by its letters: a random model, too, is better at times."""

    async def score(self, trajectory: art.Trajectory) -> float:
        """Any number that follows from the messages."""
        return sum(map(ord, str(trajectory.messages))) % 7 / 7
