"""The product: reward rises on held-out scenarios, for several seeds and ways to train."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from colours import colours_model

import art_cli as art

SLOW_LOSSES = ("sequence_mean", "group_mean", "grpo", "dr_grpo", "cispo")


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


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
def test_reward_rises_on_held_out_scenarios(tmp_path: Path, seed: int) -> None:
    before, after = rise(colours_model(seed), tmp_path, 30)
    assert before < 0.5
    assert after > before + 0.35


@pytest.mark.parametrize(
    "loss",
    ["gspo", *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW_LOSSES)],
)
def test_every_loss_learns(tmp_path: Path, loss: str) -> None:
    before, after = rise(colours_model(0, loss=loss), tmp_path, 30)
    assert after > before + 0.3


@pytest.mark.slow
def test_an_adapter_learns_and_leaves_the_base_alone(tmp_path: Path) -> None:
    adapter = art.AdapterConfig(rank=8, alpha=16)
    model = colours_model(0, adapter=adapter, lr=1e-2)
    before, after = rise(model, tmp_path, 60)
    assert after > before + 0.2
    assert not any(
        p.requires_grad for n, p in model.parts.policy.model.named_parameters() if "lora" not in n
    )


@pytest.mark.slow
def test_kl_holds_the_policy_near_the_reference(tmp_path: Path) -> None:
    free = colours_model(0)
    held = colours_model(0, kl_coef=10.0)
    _, without = rise(free, tmp_path / "a", 20)
    _, with_kl = rise(held, tmp_path / "b", 20)
    assert with_kl < without - 0.2
