"""An engine that does not serve the trainer's weights is found, in each of the ways it can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import torch

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import EngineError
from art_cli.models.policy import Policy
from art_cli.training.canary import Canary
from art_cli.training.trainers.grpo import GRPOTrainer

SAMPLING = SamplingConfig(max_tokens=8)


@pytest.fixture
def policy(make_policy: Callable[..., Policy]) -> Policy:
    """A policy without an embedding of zeros: behind a norm such a one is all noise."""
    policy = make_policy()
    change(policy, 0.05)
    return policy


def change(policy: Policy, by: float) -> None:
    for p in policy.trainable:
        p.data += by * torch.randn_like(p)


def canary_of(policy: Policy) -> Canary:
    return Canary(policy, GRPOTrainer(policy, TrainConfig(steps=1), SAMPLING), SAMPLING, 1024)


def serve(policy: Policy) -> TransformersEngine:
    return TransformersEngine(policy, EngineConfig(), SAMPLING, frozenset())


def check(canary: Canary, engine: TransformersEngine, version: int) -> None:
    async def sync_and_check() -> None:
        await engine.sync(version)
        await canary.check(engine, version)

    asyncio.run(sync_and_check())


def test_the_trainers_own_weights_pass_however_often_they_change(policy: Policy) -> None:
    canary, engine = canary_of(policy), serve(policy)
    for version in range(4):
        check(canary, engine, version)
        change(policy, 0.01)


def test_other_weights_are_found(policy: Policy) -> None:
    stale = serve(policy.twin())
    change(policy, 0.05)
    with pytest.raises(EngineError, match=r"after the sync to version 1 .* differ by"):
        check(canary_of(policy), stale, 1)


def test_weights_that_stand_still_are_found_below_any_bound_on_log_probabilities(
    policy: Policy,
) -> None:
    canary, stale = canary_of(policy), serve(policy.twin())
    check(canary, stale, 0)
    check(canary, stale, 1)  # neither has moved
    change(policy, 1e-4)
    with pytest.raises(EngineError, match=r"after the sync to version 2 .* to the bit"):
        check(canary, stale, 2)


def test_an_answer_of_another_version_is_found(policy: Policy) -> None:
    canary, engine = canary_of(policy), serve(policy)
    check(canary, engine, 1)
    with pytest.raises(EngineError, match="it answers with version 1"):
        asyncio.run(canary.check(engine, 2))
