"""The loss that balances the routers against its formula, by transformers' own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from batches import SAMPLING, config, distance, gradient_of, hf_copy, make_groups
from torch import Tensor

from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import UsageError
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.trainers import grpo
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.router_load import check_router
from art_cli.types import TrajectoryGroup
from tests import tiny_moe
from tests.conftest import MakePolicy

FAMILIES = [
    "qwen3_moe",
    "mixtral",
    "deepseek_v3",
    pytest.param("qwen3_5_moe", marks=pytest.mark.slow),  # read node by node
]


@pytest.fixture(autouse=True)
def _off_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(grpo.MAX_LOGPROB_GAP, torch.float32, 100.0)


def moe(name: str, rank: int = 0) -> Policy:
    tokenizer: Any = None
    policy = Policy(tiny_moe.make(name), tokenizer)
    if rank:
        policy.add_adapter(AdapterConfig(rank=rank, target_modules=["attention", "experts"]), 0)
        torch.manual_seed(1)
        for p in policy.trainable:
            p.data += 0.1 * torch.randn_like(p)
    return policy


def plain_balance(model: Any, groups: list[TrajectoryGroup]) -> Tensor:
    """Switch Transformer's loss over the tokens of all sequences, one after another."""
    logits: dict[int, list[Tensor]] = {}
    routers = [m for n, m in model.named_modules() if n.endswith("mlp.gate")]
    chosen: dict[int, list[Tensor]] = {}

    def note(i: int) -> Any:
        def hook(_: Any, __: Any, output: tuple[Tensor, Tensor, Tensor]) -> None:
            logits.setdefault(i, []).append(output[0])
            chosen.setdefault(i, []).append(output[2])

        return hook

    hooks = [router.register_forward_hook(note(i)) for i, router in enumerate(routers)]
    for group in groups:
        if has_gradient(group.rewards):
            for trajectory in group.valid:
                for s in trajectory.sequences:
                    model(torch.tensor([s.ids]), use_cache=False)
    for hook in hooks:
        hook.remove()
    losses = []
    for i in range(len(routers)):
        probabilities = torch.cat(logits[i]).double().softmax(-1)
        num = probabilities.shape[1]
        picked = torch.cat(chosen[i]).flatten().bincount(minlength=num).double()
        losses.append(num * (picked / picked.sum() * probabilities.mean(0)).sum())
    return torch.stack(losses).mean()


def update(
    policy: Policy, groups: list[TrajectoryGroup], **changes: Any
) -> tuple[Tensor, dict[str, float]]:
    trainer = GRPOTrainer(policy, config(**changes | {"learning_rate": 1e-12}), SAMPLING)
    metrics = trainer.step(groups, 0)
    return gradient_of(policy.model), metrics


@pytest.mark.parametrize("rank", [0, 3], ids=["full", "lora"])
@pytest.mark.parametrize("name", FAMILIES)
def test_the_gradient_is_autograds_of_switch_transformers_formula(name: str, rank: int) -> None:
    policy = moe(name, rank)
    groups, model = make_groups(policy), hf_copy(policy)
    plain = plain_balance(model, groups)
    (1e3 * plain).backward()
    without, quiet = update(policy, groups)
    with_it, metrics = update(policy, groups, router_aux_loss_coef=1e3)
    assert distance(with_it - without, gradient_of(model)) < 1e-4
    assert metrics["loss/router_aux"] == pytest.approx(plain.item(), rel=1e-4)
    assert metrics["loss/policy"] == pytest.approx(quiet["loss/policy"], rel=1e-4)
    assert "loss/router_aux" not in quiet
    assert 1 <= quiet["router/max_load"] <= 6
    assert metrics["router/max_load"] == pytest.approx(quiet["router/max_load"])


@pytest.mark.parametrize("recompute", [False, True])
def test_splitting_into_microbatches_changes_nothing(recompute: bool) -> None:
    policy = moe("qwen3_moe", 3)
    policy.recomputes = recompute
    groups = make_groups(policy)
    whole, metrics = update(policy, groups, router_aux_loss_coef=10.0)
    for budget in (250, 64):
        split, others = update(policy, groups, router_aux_loss_coef=10.0, microbatch_tokens=budget)
        assert distance(split, whole) < 1e-5
        for key in ("loss/router_aux", "router/max_load"):
            assert others[key] == pytest.approx(metrics[key], rel=1e-5)
    assert others["data/tokens_packed"] > metrics["data/tokens_packed"], "a prefix is read twice"


def test_it_evens_the_load_out() -> None:
    policy = moe("qwen3_moe")
    groups = make_groups(policy)
    trainer = GRPOTrainer(policy, config(router_aux_loss_coef=100.0, learning_rate=1e-2), SAMPLING)
    losses = [trainer.step(groups, step)["loss/router_aux"] for step in range(10)]
    assert losses[-1] - 1 < 0.5 * (losses[0] - 1)


def test_a_dense_base_has_no_router(make_policy: MakePolicy) -> None:
    policy = make_policy()
    with pytest.raises(UsageError, match="has no effect: Qwen3ForCausalLM has no"):
        check_router(policy.base, 0.1)
    check_router(policy.base, 0.0)
    check_router(moe("mixtral").base, 0.1)
    _, metrics = update(policy, make_groups(policy))
    assert not [key for key in metrics if "router" in key]


def test_a_mixture_and_weights_that_no_gradient_reaches_are_told_once() -> None:
    policy = moe("qwen3_moe", 2)
    unused = torch.nn.Parameter(torch.ones(3))
    policy.base.register_parameter("unused", unused)
    told: list[str] = []
    groups = make_groups(policy)
    trainer = GRPOTrainer(policy, config(), SAMPLING, told.append)
    for step in range(2):
        trainer.step(groups, step)
    mixture, idle = told
    assert "a mixture of experts: where two experts" in mixture and "loss/logprob_gap" in mixture
    assert "no gradient reaches 1 of 25 tensors" in idle and unused.sum() == 3
    assert "unused; they stay as they are" in idle
