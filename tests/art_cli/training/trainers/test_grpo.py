"""The gradient of a step against the formulas, written out here with transformers' own forward."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
import torch
from batches import (
    SAMPLING,
    MakePolicy,
    config,
    distance,
    gradient_of,
    hf_copy,
    logprobs_of,
    make_groups,
    step,
    teaching_nothing,
    with_a_failure_made_likely,
)
from cases import slow_but
from torch import Tensor

from art_cli.config.sections.engine import MAX_MODEL_LEN
from art_cli.config.sections.model import AdapterConfig
from art_cli.errors import EngineError, TrainerError
from art_cli.models.policy import Policy
from art_cli.training.algorithm.packing import pack
from art_cli.training.trainers import grpo
from art_cli.training.trainers.distributed.messages import plain_sequence, sequence_of
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.sequences import training_sequences
from art_cli.types import Completion, Scenario, Sequence, Trajectory, TrajectoryGroup

LOSSES = ["token_mean", "sequence_mean", "group_mean", "grpo", "dr_grpo", "dapo", "gspo", "cispo"]
CLIP = {"grpo": (0.2, 0.2), "dr_grpo": (0.2, 0.2), "gspo": (3e-4, 4e-4), "cispo": (0.0, 5.0)}


def plain_loss(
    model: Any,
    groups: list[TrajectoryGroup],
    loss: str,
    *,
    ref: Any = None,
    kl_coef: float = 0.0,
    keep: Callable[[Trajectory], bool] = lambda t: True,
) -> Tensor:
    """The objective of the papers, one trajectory at a time, in float64."""
    low, high = CLIP.get(loss, (0.2, 0.28))
    by_group: list[list[Tensor]] = []  # the terms of each trajectory
    for group in groups:
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        mean = sum(rewards) / len(rewards)
        by_group.append([])
        for t in group.trajectories:
            if t.reward is None or not keep(t):
                continue
            advantage = t.reward - mean
            mu = torch.cat([sampled(s, torch.tensor(s.engine_logprobs[1:])) for s in t.sequences])
            logpi = sampled_logprobs(model, t)
            rho = (logpi - mu).exp()
            if loss == "gspo":
                rho = (logpi - mu).mean().exp().expand(len(mu))
            if loss == "cispo":
                terms = -rho.detach().clamp(max=high) * advantage * logpi
            else:
                bounded = rho.clamp(1 - low, 1 + high)
                terms = -torch.minimum(rho.clamp(max=3) * advantage, bounded * advantage)
            if kl_coef:
                with torch.no_grad():
                    logref = sampled_logprobs(ref, t)
                terms = terms + kl_coef * rho * ((logref - logpi).exp() - (logref - logpi) - 1)
            by_group[-1].append(terms)
    every = [terms for group in by_group for terms in group]
    if loss in ("token_mean", "dapo", "cispo"):
        return torch.cat(every).sum() / sum(len(terms) for terms in every)
    if loss == "dr_grpo":
        return torch.cat(every).sum() / (len(every) * MAX_MODEL_LEN)
    if loss == "group_mean":
        return torch.stack([torch.cat(group).mean() for group in by_group if group]).mean()
    return torch.stack([terms.mean() for terms in every]).mean()


def sampled(sequence: Sequence, values: Tensor) -> Tensor:
    """Those of values [T - 1] that belong to sampled tokens, in float64."""
    return values.double()[torch.tensor(sequence.mask[1:]).bool()]


def sampled_logprobs(model: Any, trajectory: Trajectory) -> Tensor:
    """Of its sequences, one after the other."""
    return torch.cat(
        [sampled(s, logprobs_of(model, s.ids, SAMPLING.temperature)) for s in trajectory.sequences]
    )


@pytest.fixture
def off_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches through whose ratios are far from one, as the clip's tests need."""
    monkeypatch.setitem(grpo.MAX_LOGPROB_GAP, torch.float32, 100.0)


@pytest.mark.parametrize("kl_coef", slow_but((0.3,), (0.0, 0.3)))
@pytest.mark.parametrize("rank", slow_but((4,), (0, 4)))
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.usefixtures("off_policy")
def test_the_gradient_is_autograds_of_the_plain_formula(
    make_policy: MakePolicy, loss: str, rank: int, kl_coef: float
) -> None:
    policy = make_policy(rank)
    policy.keep_reference()
    ref = hf_copy(policy)
    torch.manual_seed(7)
    for p in policy.trainable:
        p.data += 0.02 * torch.randn_like(p)
    groups, model = with_a_failure_made_likely(make_groups(policy)), hf_copy(policy)
    plain = plain_loss(model, groups, loss, ref=ref, kl_coef=kl_coef)
    plain.backward()
    mine, metrics = step(policy, groups, loss=loss, kl_coef=kl_coef)
    assert distance(mine, gradient_of(model)) < 1e-5
    assert metrics["loss/policy"] == pytest.approx(plain.item(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("kl_coef", slow_but((0.3,), (0.0, 0.3)))
@pytest.mark.parametrize("loss", slow_but(("grpo", "gspo", "dr_grpo"), LOSSES))
@pytest.mark.usefixtures("off_policy")
def test_splitting_into_microbatches_changes_nothing(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch, loss: str, kl_coef: float
) -> None:
    calls: list[int] = []
    hidden = Policy.hidden
    monkeypatch.setattr(Policy, "hidden", lambda *a: calls.append(1) or hidden(*a))
    policy = make_policy()
    policy.keep_reference()
    groups = make_groups(policy)
    gradients, counts = [], []
    for budget in (100_000, 250, 100, 64):
        present = copy.deepcopy(policy.base.state_dict())
        calls.clear()
        gradients.append(step(policy, groups, loss=loss, kl_coef=kl_coef, microbatch_tokens=budget))
        counts.append(len(calls) // (2 if kl_coef else 1))
        policy.base.load_state_dict(present)
    assert counts[0] == 1 and counts[1] == 2 and counts[-1] >= 7
    whole, metrics = gradients[0]
    for gradient, others in gradients[1:]:
        assert distance(gradient, whole) < 1e-6
        assert others["loss/policy"] == pytest.approx(metrics["loss/policy"], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.usefixtures("off_policy")
def test_equal_groups_cost_no_forward_and_stay_in_the_count(
    make_policy: MakePolicy, loss: str
) -> None:
    """Against the formula with the group in it, and against the same batch without it."""
    policy = make_policy()
    groups = make_groups(policy)
    sequences, counts = training_sequences(groups, config(loss=loss), MAX_MODEL_LEN)
    assert len(sequences) == 3 and counts.groups == 4
    assert counts.tokens == sum(t.num_sampled for g in groups for t in g.valid)
    present = copy.deepcopy(policy.base.state_dict())
    with_it, metrics = step(policy, groups, loss=loss)
    policy.base.load_state_dict(present)
    without, _ = step(policy, [groups[0], *groups[2:]], loss=loss)
    tied = sum(t.num_sampled for t in groups[1].valid)
    assert metrics["data/tokens_trained"] == counts.tokens - tied
    scale = {
        **dict.fromkeys(["token_mean", "dapo", "cispo"], (counts.tokens - tied) / counts.tokens),
        "group_mean": 3 / 4,
    }
    trajectories = (counts.trajectories - 4) / counts.trajectories
    assert distance(with_it, scale.get(loss, trajectories) * without) < 1e-6


@pytest.mark.usefixtures("off_policy")
def test_equal_groups_still_carry_the_gradient_of_the_kl(make_policy: MakePolicy) -> None:
    policy = make_policy()
    policy.keep_reference()
    torch.manual_seed(7)
    for p in policy.trainable:
        p.data += 0.02 * torch.randn_like(p)
    gradient, metrics = step(policy, [make_groups(policy)[1]], kl_coef=0.3)
    assert metrics["loss/kl"] > 1e-4 and gradient.norm() > 1e-4


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.usefixtures("off_policy")
def test_masked_overlong_trajectories_leave_the_sum_and_the_count(
    make_policy: MakePolicy, loss: str
) -> None:
    """Their rewards still are part of the mean that siblings are compared with."""
    policy = make_policy()
    groups, model = make_groups(policy), hf_copy(policy)
    plain_loss(model, groups, loss, keep=lambda t: not t.truncated).backward()
    mine, _ = step(policy, groups, loss=loss, mask_truncated_completions=True)
    assert distance(mine, gradient_of(model)) < 1e-5
    cfg = config(loss=loss, mask_truncated_completions=True)
    _, counts = training_sequences(groups, cfg, MAX_MODEL_LEN)
    trained = [t for g in groups for t in g.valid if not t.truncated]
    assert counts.tokens == sum(t.num_sampled for t in trained)
    assert counts.trajectories == len(trained)


@pytest.mark.usefixtures("off_policy")
def test_prompts_and_glue_are_never_in_the_loss(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = make_groups(policy)
    _, metrics = step(policy, groups)
    trained = [t for g in (groups[0], *groups[2:]) for t in g.valid]
    assert metrics["data/tokens_trained"] == sum(sum(s.mask) for t in trained for s in t.sequences)


def test_a_batch_without_any_gradient_changes_nothing(make_policy: MakePolicy) -> None:
    policy = make_policy()
    before = copy.deepcopy(policy.base.state_dict())
    groups = make_groups(policy, noise=0)
    metrics = GRPOTrainer(policy, config(), SAMPLING).step([groups[1]], 0)
    assert metrics == {"data/tokens_trained": 0, "data/tokens_packed": 0}
    assert all(torch.equal(before[k], v) for k, v in policy.base.state_dict().items())


def test_groups_that_failed_or_were_masked_entirely_are_passed_over(
    make_policy: MakePolicy,
) -> None:
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    for t in groups[0].trajectories:
        t.reward = None
    for t in groups[2].trajectories:
        t.truncated = True
    mine, _ = step(policy, groups, mask_truncated_completions=True)
    policy = make_policy()
    model = hf_copy(policy)
    plain_loss(model, groups[1:], "token_mean", keep=lambda t: not t.truncated).backward()
    assert distance(mine, gradient_of(model)) < 1e-5


# ---------------------------------------------------------------- what the first batch proves


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_an_exact_engine_passes_and_its_ratios_are_one(make_policy: MakePolicy, rank: int) -> None:
    policy = make_policy(rank)
    _, metrics = step(policy, make_groups(policy, noise=0))
    assert metrics["loss/logprob_gap"] < 1e-5
    assert abs(metrics["loss/ratio_max"] - 1) < 1e-4 and metrics["loss/clip_fraction"] == 0


@pytest.mark.parametrize("wrong", ["weights", "temperature", "adapter"])
def test_an_engine_with_another_distribution_stops_the_run(
    make_policy: MakePolicy, wrong: str
) -> None:
    policy = make_policy(rank=4)
    groups, sampling = make_groups(policy, noise=0), SAMPLING
    if wrong == "weights":
        policy.trainable[0].data += 0.1
    elif wrong == "adapter":
        policy = make_policy()
    else:
        sampling = dataclasses.replace(SAMPLING, temperature=1.0)
    before = [p.detach().clone() for p in policy.model.parameters()]
    with pytest.raises(EngineError, match="the first batch is not on-policy"):
        GRPOTrainer(policy, config(), sampling).step(groups, 0)
    after = policy.model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_first_batch_that_teaches_nothing_is_checked_by_what_was_sampled(
    make_policy: MakePolicy,
) -> None:
    policy = make_policy()
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    off, exact = ([*map(teaching_nothing, make_groups(policy, n))] for n in (0.3, 0))
    nothing_said = Trajectory(scenario=Scenario(id="s", split="train", seed=0), error="outage")
    trainer.step([TrajectoryGroup([nothing_said])], 0)
    with pytest.raises(EngineError, match="the first batch is not on-policy"):
        trainer.step(off, 0)
    assert trainer.step(exact, 0)["data/tokens_trained"] == 0
    trainer.step(off, 1)  # the first batch was the one before


def test_later_batches_may_be_off_policy(make_policy: MakePolicy) -> None:
    policy = make_policy()
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    trainer.step(make_groups(policy, noise=0), 0)
    assert trainer.step(make_groups(policy, noise=0.3), 1)["loss/logprob_gap"] > 0.1


@pytest.mark.parametrize("setting", [{"top_p": 0.9}, {"top_k": 5}])
def test_a_truncated_distribution_is_known_to_differ(
    make_policy: MakePolicy, setting: dict[str, Any]
) -> None:
    policy = make_policy()
    sampling = dataclasses.replace(SAMPLING, **setting)
    GRPOTrainer(policy, config(), sampling).step(make_groups(policy, noise=0.3), 0)


# ---------------------------------------------------------------- the update


@pytest.mark.parametrize("broken", [float("nan"), -float("inf")])
def test_a_gradient_that_is_not_finite_leaves_the_weights_as_they_were(
    make_policy: MakePolicy, broken: float
) -> None:
    policy = make_policy()
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    trainer.step(make_groups(policy, noise=0), 0)
    before = copy.deepcopy(policy.base.state_dict())
    groups = make_groups(policy)
    sequence = groups[0].trajectories[0].sequences[0]  # of positive advantage: not clipped above
    sequence.engine_logprobs[sequence.mask.index(1)] = broken
    trainer._clip_high = float("inf")
    with pytest.raises(TrainerError, match="the gradient of step 2 is not finite"):
        trainer.step(groups, 1)
    assert all(torch.equal(before[k], v) for k, v in policy.base.state_dict().items())
    assert trainer.step(make_groups(policy), 2)["loss/grad_norm"] > 0  # and it can go on


@pytest.mark.usefixtures("off_policy")
def test_gradients_are_clipped_to_the_norm_and_reported_unclipped(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = make_groups(policy)
    whole, metrics = step(policy, groups)
    clipped, others = step(make_policy(), groups, max_grad_norm=float(whole.norm()) / 10)
    assert metrics["loss/grad_norm"] == pytest.approx(float(whole.norm()), rel=1e-5)
    assert others["loss/grad_norm"] == pytest.approx(metrics["loss/grad_norm"], rel=1e-5)
    assert distance(10 * clipped, whole) < 1e-5


@pytest.mark.usefixtures("off_policy")
def test_the_step_is_adams_with_the_scheduled_learning_rate(make_policy: MakePolicy) -> None:
    """Adam's first step moves every weight by the learning rate, against its gradient."""
    for number, factor in [(0, 1.0), (5, 0.5)]:
        policy = make_policy()
        before = [p.detach().clone() for p in policy.trainable]
        trainer = GRPOTrainer(policy, config(lr_scheduler_type="linear"), SAMPLING)
        trainer.step(make_groups(policy), number)
        for old, p in zip(before, policy.trainable, strict=True):
            assert p.grad is not None
            large = p.grad.abs() > 1e-5
            moved = (p.detach() - old)[large]
            assert torch.allclose(moved, -1e-3 * factor * p.grad[large].sign(), rtol=1e-2)


def test_the_update_raises_good_and_lowers_bad_trajectories(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = make_groups(policy, noise=0)[:1]
    GRPOTrainer(policy, config(), SAMPLING).step(groups, 0)
    model = hf_copy(policy)
    good, bad = (groups[0].trajectories[i].sequences[0] for i in (0, 1))
    for s, sign in [(good, 1), (bad, -1)]:
        after = logprobs_of(model, s.ids, 0.7)[torch.tensor(s.mask[1:]).bool()].sum().item()
        assert sign * (after - sum(s.engine_logprobs)) > 0


def test_a_saved_optimizer_goes_on_as_if_it_had_not_stopped(
    make_policy: MakePolicy, tmp_path: Path
) -> None:
    policy = make_policy()
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    trainer.step(make_groups(policy, noise=0), 0)
    trainer.save(tmp_path / "optimizer.pt")
    resumed = Policy(copy.deepcopy(policy.base), policy.tokenizer)
    again = GRPOTrainer(resumed, config(), SAMPLING)
    again.load(tmp_path / "optimizer.pt")
    groups = make_groups(policy, noise=0)
    trainer.step(groups, 1)
    again.step(groups, 1)
    for a, b in zip(policy.trainable, resumed.trainable, strict=True):
        assert torch.equal(a, b)


# ---------------------------------------------------------------- the reference


def test_the_reference_of_a_fresh_adapter_is_the_base(make_policy: MakePolicy) -> None:
    policy = make_policy()
    base = hf_copy(policy)
    policy.add_adapter(AdapterConfig(rank=4, alpha=8), 0)
    policy.keep_reference()
    for p in policy.trainable:
        p.data += 0.1
    ids = torch.arange(20)[None]
    with torch.no_grad(), policy.as_reference():
        as_reference = policy.hidden(ids, ids)
    with torch.no_grad(), policy.model.disable_adapter():  # type: ignore[operator]
        off = policy.hidden(ids, ids)
    with torch.no_grad():
        plain = base.model(input_ids=ids).last_hidden_state.float()
    assert torch.equal(as_reference, off) and torch.allclose(off, plain, atol=1e-5)
    with torch.no_grad():
        assert not torch.allclose(policy.hidden(ids, ids), off, atol=1e-2)


def test_being_the_reference_ends_even_by_an_error(make_policy: MakePolicy) -> None:
    policy = make_policy()
    policy.keep_reference()
    policy.trainable[0].data += 1.0
    present = [p.detach().clone() for p in policy.trainable]
    with pytest.raises(KeyError), policy.as_reference():
        assert not torch.equal(policy.trainable[0], present[0])
        raise KeyError
    assert all(torch.equal(a, b) for a, b in zip(present, policy.trainable, strict=True))


def test_the_kl_is_zero_at_the_reference_and_then_positive(make_policy: MakePolicy) -> None:
    policy = make_policy()
    policy.keep_reference()
    trainer = GRPOTrainer(policy, config(kl_coef=0.1), SAMPLING)
    first = trainer.step(make_groups(policy, noise=0), 0)
    second = trainer.step(make_groups(policy, noise=0), 1)
    assert abs(first["loss/kl"]) < 1e-9 < 1e-5 < second["loss/kl"]


# ---------------------------------------------------------------- metrics of the ratio


@pytest.mark.parametrize("loss", LOSSES)
def test_on_policy_nothing_is_clipped(make_policy: MakePolicy, loss: str) -> None:
    policy = make_policy()
    _, metrics = step(policy, make_groups(policy, noise=0), loss=loss)
    assert metrics["loss/clip_fraction"] == 0


@pytest.mark.usefixtures("off_policy")
def test_the_clip_fraction_of_gspo_counts_sequences_ratios(make_policy: MakePolicy) -> None:
    """Every token is far off, but each sequence's mean ratio is one: GSPO clips nothing."""
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    for s in (s for g in groups for t in g.trajectories for s in t.sequences):
        sampled = [t for t, m in enumerate(s.mask) if m]
        for a, b in zip(sampled[::2], sampled[1::2], strict=False):
            s.engine_logprobs[a] += 0.5
            s.engine_logprobs[b] -= 0.5
    _, metrics = step(policy, groups, loss="gspo")
    assert metrics["loss/clip_fraction"] == 0 and metrics["loss/ratio_max"] > 1.5


def test_entropy_is_estimated_from_the_sampled_tokens(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = make_groups(policy, noise=0)
    _, metrics = step(policy, groups)
    trained = [s for g in (groups[0], *groups[2:]) for t in g.valid for s in t.sequences]
    total = sum(sum(s.engine_logprobs) for s in trained)
    assert metrics["loss/entropy"] == pytest.approx(
        -total / sum(s.num_sampled for s in trained), rel=1e-4
    )


def two_turns(prompt: int) -> Sequence:
    """A prompt, and two turns of two and three tokens with glue between them."""
    s = Sequence()
    s.extend_prompt([7] * prompt)
    for num in (2, 3):
        logprobs = [-1.0] * num
        s.extend_sampled(
            Completion(
                token_ids=[20 + num] * num,
                logprobs=logprobs,
                finish_reason="stop",
                policy_version=0,
            )
        )
        s.extend_prompt([9])
    return s.up_to(len(s.ids) - 1)


def test_each_turn_is_learned_from_by_its_own_advantage() -> None:
    """Token by token, over two sequences, and as a microbatch has them."""
    scenario = Scenario(id="s", split="train", seed=0)
    forked = Trajectory(scenario=scenario, reward=1.0, sequences=[two_turns(3), two_turns(1)])
    forked.advantage, forked.turn_advantages = 0.25, [1.0, -2.0, 0.5, 1.5]
    plain = Trajectory(scenario=scenario, reward=1.0, advantage=0.0, sequences=[two_turns(2)])
    [found], _ = training_sequences([TrajectoryGroup([forked, plain])], config(), MAX_MODEL_LEN)
    by_token = [[*compress(s.each_advantage(), s.mask)] for s in found]
    assert by_token == [[1.0, 1.0, -2.0, -2.0, -2.0], [0.5, 0.5, 1.5, 1.5, 1.5], [0.0] * 5]
    again = [sequence_of(plain_sequence(s)) for s in found]  # as another rank gets it
    assert again == found
    batch = pack(found)
    for number, values in enumerate(by_token):
        assert batch.advantages[batch.unit == number].tolist() == values


def test_a_group_without_any_advantage_costs_no_forward_though_its_rewards_differ() -> None:
    scenario = Scenario(id="s", split="train", seed=0)
    group = TrajectoryGroup(
        [
            Trajectory(scenario=scenario, reward=r, advantage=0.0, sequences=[two_turns(2)])
            for r in (0.0, 1.0)
        ]
    )
    assert training_sequences([group], config(), MAX_MODEL_LEN)[0] == []
    group.trajectories[0].turn_advantages = [1.0, -1.0]  # whose mean is 0
    assert len(training_sequences([group], config(), MAX_MODEL_LEN)[0]) == 1
