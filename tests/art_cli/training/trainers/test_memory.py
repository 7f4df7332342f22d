"""What the update does to stay within memory does not change what it computes."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import SAMPLING, MakePolicy, config, distance, gradient_of, make_groups, step
from colours import colours_model
from torch import Tensor

import art_cli as art
from art_cli.errors import TrainerError
from art_cli.models import policy as policy_module
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.algorithm.packing import TrainSequence, num_packed, partition
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import TrajectoryGroup


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set how many tokens fit at once; more raise as a GPU does. -> the sizes that were run"""
    sizes: list[int] = []
    hidden = Policy.hidden

    def limit(most: int, only_backward: bool = False) -> list[int]:
        def limited(self: Policy, ids: Tensor, *args: Any) -> Tensor:
            sizes.append(ids.shape[1])
            if ids.shape[1] > most and not only_backward:
                raise torch.OutOfMemoryError("CUDA out of memory")
            out = hidden(self, ids, *args)
            if ids.shape[1] > most and out.requires_grad:
                out.register_hook(lambda g: _raise())
            return out

        monkeypatch.setattr(Policy, "hidden", limited)
        return sizes

    return limit


def _raise() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
def test_out_of_memory_repeats_the_step_with_less_at_once_and_the_same_gradient(
    make_policy: MakePolicy, little_memory: Any, where: str, kl_coef: float
) -> None:
    undisturbed, policy = make_policy(rank=4), make_policy(rank=4)
    for p in (undisturbed, policy):
        p.keep_reference()
    groups = make_groups(undisturbed, noise=0)
    whole, metrics = step(undisturbed, groups, kl_coef=kl_coef)
    sizes = little_memory(150, only_backward=where == "backward")
    said: list[str] = []
    trainer = GRPOTrainer(policy, config(kl_coef=kl_coef), SAMPLING, said.append)
    mine = trainer.step(groups, 0)
    assert max(sizes) > 150 and trainer.budget.tokens <= 150
    assert distance(gradient_of(policy.model), whole) < 1e-6
    for a, b in zip(policy.trainable, undisturbed.trainable, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert {k: v for k, v in mine.items() if k != "data/tokens_packed"} == pytest.approx(
        {k: v for k, v in metrics.items() if k != "data/tokens_packed"}, rel=1e-4, abs=1e-6
    )
    assert said and all("out of memory" in line and "the step is repeated" in line for line in said)
    sizes.clear()
    trainer.step(groups, 1)
    assert max(sizes) <= 150  # the smaller budget stays


def test_a_sequence_that_does_not_fit_alone_is_a_clear_error(
    make_policy: MakePolicy, little_memory: Any
) -> None:
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    before = copy.deepcopy(policy.base.state_dict())
    little_memory(20)
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    with pytest.raises(TrainerError, match="as little as the update can run at once"):
        trainer.step(groups, 0)
    assert all(torch.equal(before[k], v) for k, v in policy.base.state_dict().items())
    assert all(p.grad is None for p in policy.trainable)


def test_a_trajectory_with_one_ratio_that_does_not_fit_is_the_same_error(
    make_policy: MakePolicy, little_memory: Any
) -> None:
    """A split would change the ratio of GSPO: it is not tried again with less."""
    policy = make_policy()
    forked = make_groups(policy, noise=0)[0].trajectories[2]
    groups = [TrajectoryGroup([forked, dataclasses.replace(forked, sequences=[], reward=0.0)])]
    size = num_packed([s.ids for s in forked.sequences])
    assert len(forked.sequences) == 2
    set_advantages(groups, "mean")
    sizes = little_memory(size - 1)
    trainer = GRPOTrainer(policy, config(loss="gspo"), SAMPLING)
    with pytest.raises(TrainerError, match=f"with {size} tokens, which is as little as"):
        trainer.step(groups, 0)
    assert sizes == [size]


def test_a_policy_that_never_fits_ends_at_the_least_budget(
    make_policy: MakePolicy, little_memory: Any
) -> None:
    """Short sequences that share nothing: no microbatch is of one sequence before the end."""
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    for t in (t for g in groups for t in g.trajectories):
        for s in t.sequences:
            s.ids, s.mask = s.ids[-9:], s.mask[-9:]
            s.engine_logprobs = s.engine_logprobs[-9:]
    little_memory(10)
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    with pytest.raises(TrainerError, match="out of memory with"):
        trainer.step(groups, 0)
    assert trainer.budget.tokens == 64


@pytest.mark.parametrize("own_forward", [True, False], ids=["ours", "transformers"])
@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_recomputed_layers_give_the_same_gradient(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, rank: int, own_forward: bool
) -> None:
    calls: list[int] = []
    for name in ("decode", "hidden_states"):
        original = getattr(policy_module, name)

        def counted(*args: Any, original: Any = original) -> Any:
            calls.append(bool(args[-1]))
            return original(*args)

        monkeypatch.setattr(policy_module, name, counted)
    gradients = []
    for setting in ("off", "on"):
        policy = make_policy(rank)
        policy._own_forward = own_forward
        policy.recompute_layers(setting)
        groups = make_groups(policy, noise=0)
        calls.clear()
        gradients.append(step(policy, groups)[0])
        assert calls == [setting == "on"]
        with torch.inference_mode():  # the engine has no backward to save for
            policy.hidden(torch.zeros(1, 3, dtype=torch.long), torch.arange(3)[None])
        assert calls[-1] is False
        assert not any(m.training for m in policy.base.modules())
    assert torch.equal(*gradients)


def test_recomputing_keeps_less_for_the_backward(make_policy: MakePolicy) -> None:
    kept = {}
    for setting in ("off", "on"):
        policy, total = make_policy(), [0]
        policy.recompute_layers(setting)

        def pack(t: Tensor, total: list[int] = total) -> Tensor:
            total[0] += t.numel()
            return t

        ids = torch.arange(200)[None]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            policy.hidden(ids, ids)
        kept[setting] = total[0]
    assert kept["on"] < kept["off"] / 5


@pytest.mark.parametrize("budget", [500, 2000])
def test_a_part_never_exceeds_the_budget_for_skewed_lengths(budget: int) -> None:
    """One prompt, many short and a few very long answers: the tree of all is far too large."""
    rng = random.Random(0)

    def ids(num: int) -> list[int]:
        return [rng.randrange(50) for _ in range(num)]

    prompt = ids(300)
    lengths = [int(20 * rng.paretovariate(0.8)) % 1500 + 1 for _ in range(64)]
    group = [
        TrainSequence(ids=prompt + ids(n), mask=[0] * (300 + n), engine_logprobs=[0.0] * (300 + n))
        for n in lengths
    ]
    parts = partition([group], budget)
    longest = 300 + max(lengths)
    assert num_packed([s.ids for s in group]) > 2 * budget
    for part in parts:
        assert num_packed([s.ids for s in part]) <= (budget if len(part) > 1 else longest)
    assert sum(map(len, parts)) == 64


@pytest.mark.slow
def test_a_resumed_run_keeps_the_budget_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden, sizes = Policy.hidden, []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # it has SFT of its own

    def limited(self: Policy, ids: Tensor, *args: Any) -> Tensor:
        if torch.is_grad_enabled():
            sizes.append(ids.shape[1])
            if ids.shape[1] > 200:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return hidden(self, ids, *args)

    monkeypatch.setattr(Policy, "hidden", limited)
    said: list[str] = []

    async def one_step(resume: bool) -> int:
        model = colours_model(0)
        async with art.LocalBackend(tmp_path, resume=resume, say=said.append) as backend:
            await model.register(backend)
            sizes.clear()
            scenarios = art.scenarios_of(model, "train")[:8]
            await model.train(await art.gather_trajectory_groups(model, scenarios))
            model.save()
            return model.parts.trainer.budget.tokens

    first = asyncio.run(one_step(False))
    assert first <= 200 < sizes[0]
    assert len(said) >= 2  # in SFT, and in the step
    said.clear()
    assert asyncio.run(one_step(True)) == first
    assert max(sizes) <= 200 and not said
