"""Rollout batches made by hand, and the gradient of a step on one."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import Scenario, Sequence, Trajectory, TrajectoryGroup

SAMPLING = SamplingConfig(temperature=0.7, max_tokens=40)
MakePolicy = Callable[..., Policy]


def config(**changes: Any) -> TrainConfig:
    """Gradients are not clipped, and steps are small and whole."""
    settings: dict[str, Any] = {"learning_rate": 1e-3, "max_grad_norm": 1e9, "max_kl": None}
    return TrainConfig(steps=10, **(settings | changes))


def hf_copy(policy: Policy) -> Any:
    """transformers' (and PEFT's) model with the same weights, in float64."""
    model: Any = copy.deepcopy(policy.model)
    base = model.base_model.model if policy.has_adapter else model
    base.set_attn_implementation("sdpa")
    base.config._experts_implementation = "eager"  # the grouped product knows no float64
    return model.double()


def logprobs_of(model: Any, ids: list[int], temperature: float) -> Tensor:
    """[T - 1], from full logits."""
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return (logits / temperature).log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def make_groups(policy: Policy, noise: float = 0.3) -> list[TrajectoryGroup]:
    """Four groups off the policy by `noise`: forks, a failure, a tie, a truncation, shared tokens.

    `noise` 0 gives what an exact engine would have said.
    """
    rng, model = random.Random(0), hf_copy(policy)
    torch.manual_seed(0)

    def sequence(prompt: list[int], turns: int) -> Sequence:
        s = Sequence(ids=list(prompt), mask=[0] * len(prompt))
        for _ in range(turns):
            sampled, glue = rng.randrange(1, 9), rng.randrange(4)
            s.ids += [rng.randrange(250) for _ in range(sampled + glue)]
            s.mask += [1] * sampled + [0] * glue
        with torch.no_grad():
            exact = logprobs_of(model, s.ids, SAMPLING.temperature)
        exact = exact + noise * torch.randn(len(exact))
        s.engine_logprobs = [0.0, *exact.tolist()]
        s.engine_logprobs = [e * m for e, m in zip(s.engine_logprobs, s.mask, strict=True)]
        return s

    groups = []
    for i, rewards in enumerate([[1, 0, 0.2, None], [0.5] * 4, [3, 3, 1, 0], [None, 2, 2, 2.5]]):
        scenario = Scenario(id=f"train-{i}", split="train", seed=i)
        prompt = [rng.randrange(250) for _ in range(rng.randrange(5, 90))]
        trajectories = [
            Trajectory(
                scenario=scenario,
                reward=reward,
                sequences=[sequence(prompt, 1 + j) for _ in range(1 + (j == 2))],
                truncated=j == 1,
            )
            for j, reward in enumerate(rewards)
        ]
        trajectories[3].sequences[0] = copy.deepcopy(trajectories[2].sequences[0])
        groups.append(TrajectoryGroup(trajectories))
    set_advantages(groups, "mean")
    return groups


def teaching_nothing(group: TrajectoryGroup) -> TrajectoryGroup:
    """A copy, whose advantages are all zero."""
    group = copy.deepcopy(group)
    for trajectory in group.trajectories:
        trajectory.advantage = 0.0
    return group


def with_a_failure_made_likely(groups: list[TrajectoryGroup]) -> list[TrajectoryGroup]:
    """The same, but a trajectory of negative advantage is some five times as likely as it was: by
    token, and as a whole."""
    worst = min((t for g in groups for t in g.valid), key=lambda t: t.advantage or 0.0)
    assert worst.advantage and worst.advantage < 0
    for s in worst.sequences:
        s.engine_logprobs = [e - 1.6 * m for e, m in zip(s.engine_logprobs, s.mask, strict=True)]
    return groups


def gradient_of(model: Any) -> Tensor:
    return torch.cat(
        [
            p.grad.flatten().double() if p.grad is not None else torch.zeros(p.numel()).double()
            for p in model.parameters()
            if p.requires_grad
        ]
    )


def step(policy: Policy, groups: list[TrajectoryGroup], **changes: Any) -> tuple[Tensor, Any]:
    """-> (the gradient of one step, its metrics)"""
    metrics = GRPOTrainer(policy, config(**changes), SAMPLING).step(groups, 0)
    return gradient_of(policy.model), metrics


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())
