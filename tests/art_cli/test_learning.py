"""The product: reward rises on held-out scenarios, for several seeds and ways to train."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import art_cli as art
from art_cli.config.schema import TinyConfig

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
    warm_all = art.WarmupConfig(
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
    train = art.TrainConfig(steps=30, learning_rate=sections.pop("lr", 4e-3), **sections)
    return art.TrainableModel(
        name=f"seed-{seed}",
        project="test",
        base_model=base,
        env=Opposites,
        warmup=warm_all,
        sampling=art.SamplingConfig(max_tokens=6),
        train=train,
        seed=seed,
    )


def rise(model: art.TrainableModel, root: Path, steps: int) -> tuple[float, float]:
    """Held-out reward before and after."""
    return asyncio.run(_rise(model, root, steps))


async def _rise(model: art.TrainableModel, root: Path, steps: int) -> tuple[float, float]:
    async with art.LocalBackend(root) as backend:
        await model.register(backend)
        before = await art.evaluate(model, episodes=128)
        scenarios = art.scenarios_of(model, "train")
        for step in range(steps):
            now = scenarios[8 * step : 8 * step + 8]
            groups = await art.gather_trajectory_groups(model, now, group_size=8)
            await model.train(groups)
        after = await art.evaluate(model, episodes=128)
    return before.reward, after.reward


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reward_rises_on_held_out_scenarios(tmp_path: Path, seed: int) -> None:
    before, after = rise(colours_model(seed), tmp_path, 30)
    assert before < 0.5
    assert after > before + 0.35


@pytest.mark.parametrize("loss", ["dr_grpo", "dapo", "gspo", "cispo"])
def test_every_loss_learns(tmp_path: Path, loss: str) -> None:
    before, after = rise(colours_model(0, loss=loss), tmp_path, 30)
    assert after > before + 0.3


def test_an_adapter_learns_and_leaves_the_base_alone(tmp_path: Path) -> None:
    adapter = art.AdapterConfig(rank=8, alpha=16)
    model = colours_model(0, adapter=adapter, lr=2e-2)
    before, after = rise(model, tmp_path, 60)
    assert after > before + 0.3
    assert not any(
        p.requires_grad for n, p in model.parts.policy.model.named_parameters() if "lora" not in n
    )


def test_kl_holds_the_policy_near_the_reference(tmp_path: Path) -> None:
    free = colours_model(0)
    held = colours_model(0, kl_coef=10.0)
    _, without = rise(free, tmp_path / "a", 20)
    _, with_kl = rise(held, tmp_path / "b", 20)
    assert with_kl < without - 0.2
