"""Turns that were held to a schema: the update computes the distribution that was sampled from."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
import torch
from batches import SAMPLING, MakePolicy, config, distance, gradient_of, hf_copy
from held import (
    COLOUR,
    END,
    SCENARIO,
    answers,
    grammar,
    held_groups,
    masked_logprobs,
    masks,
    sequence_of,
)
from torch import Tensor

from art_cli.config.sections.engine import MAX_MODEL_LEN, EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import TrainerError
from art_cli.models.policy import Policy
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.algorithm.packing import TrainSequence
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.masks import masks_of
from art_cli.training.trainers.sequences import training_sequences
from art_cli.types import Constrained, Sequence, Trajectory, TrajectoryGroup

LOSSES = ["token_mean", "gspo", "cispo"]


def held_logprobs(model: Any, policy: Policy, s: Sequence) -> Tensor:
    return masked_logprobs(model, policy, s, SAMPLING.temperature)[torch.tensor(s.mask[1:]) > 0]


@pytest.mark.parametrize("budget", [256, 16384], ids=["split", "whole"])
@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_on_policy_every_ratio_is_one(make_policy: MakePolicy, rank: int, budget: int) -> None:
    policy = make_policy(rank)
    groups = held_groups(policy)
    metrics = GRPOTrainer(policy, config(microbatch_tokens=budget), SAMPLING).step(groups, 0)
    assert metrics["loss/logprob_gap"] < 1e-5
    assert abs(metrics["loss/ratio_max"] - 1) < 1e-4
    forced = [i for t in groups[0].trajectories for s in t.sequences for i in s.mask]
    assert metrics["data/tokens_trained"] == sum(forced) < len(forced)


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
@pytest.mark.parametrize("kl_coef", [0.0, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_is_autograds_of_the_masked_softmax(
    make_policy: MakePolicy, loss: str, kl_coef: float, rank: int
) -> None:
    policy = make_policy(rank)
    policy.keep_reference()
    ref = hf_copy(policy)
    groups = held_groups(policy)
    torch.manual_seed(3)
    for p in policy.trainable:  # off-policy, so that the ratios are in it
        p.data += 1e-3 * torch.randn_like(p)
    trainer = GRPOTrainer(policy, config(loss=loss, kl_coef=kl_coef), SAMPLING)
    trainer.gradient(parts_of(groups, loss=loss, kl_coef=kl_coef))
    model = hf_copy(policy)
    trained = groups[0].trajectories
    by_trajectory = []
    for t in trained:
        [s] = t.sequences
        logpi = held_logprobs(model, policy, s)
        mu = torch.tensor(s.engine_logprobs).double()[torch.tensor(s.mask) > 0]
        assert t.advantage is not None
        rho = (logpi - mu).exp()
        if loss == "gspo":
            rho = (logpi - mu).mean().exp().expand(len(mu))
        low, high = (3e-4, 4e-4) if loss == "gspo" else (0.2, 0.28)
        bounded = rho.clamp(1 - low, 1 + high)
        terms = -torch.minimum(rho.clamp(max=3) * t.advantage, bounded * t.advantage)
        if loss == "cispo":
            terms = -rho.detach().clamp(max=5) * t.advantage * logpi
        if kl_coef:
            with torch.no_grad():
                logref = held_logprobs(ref, policy, s)
            terms = terms + kl_coef * rho * ((logref - logpi).exp() - (logref - logpi) - 1)
        by_trajectory.append(terms)
    if loss == "gspo":
        total = torch.stack([terms.mean() for terms in by_trajectory]).mean()
    else:
        total = torch.cat(by_trajectory).mean()
    total.backward()
    assert distance(gradient_of(policy.model), gradient_of(model)) < 1e-4


def parts_of(groups: list[TrajectoryGroup], **changes: Any) -> list[list[TrainSequence]]:
    return training_sequences(groups, config(**changes), MAX_MODEL_LEN)[0]


def test_the_gradient_reaches_no_token_that_was_not_allowed(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = held_groups(policy)
    held = [t for t in groups[0].trajectories if t.sequences[0].constrained]
    part = held[0].sequences[0].constrained[0]
    s = held[0].sequences[0].up_to(part.end)
    one = TrainSequence(
        ids=s.ids,
        mask=s.mask,
        engine_logprobs=s.engine_logprobs,
        advantages=1.0,
        weight=1.0,
        constrained=s.constrained,
    )
    allowed = masks(policy, part.grammar, s.ids[part.begin : part.end])
    trained = torch.tensor(s.mask[part.begin :]) > 0
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    policy.base.get_input_embeddings().weight.requires_grad_(True)
    head = torch.nn.Parameter(policy.head.weight.detach().clone())
    policy.head = dataclasses.replace(policy.head, weight=head)
    trainer.gradient([[one]])
    assert head.grad is not None
    touched = head.grad.abs().sum(1) > 0
    assert bool(touched.any()) and not bool((touched & ~allowed[trained].any(0)).any())


def test_siblings_of_the_same_tokens_under_other_grammars_keep_their_own(
    make_policy: MakePolicy,
) -> None:
    policy = make_policy()
    ids = [7, 8, 9, *policy.tokenizer.encode('"red"', add_special_tokens=False), END]
    prompt, num = 3, len(ids) - 3
    texts = [None, grammar(COLOUR), grammar({"type": "string"}), grammar({"enum": ["red"]})]
    model = hf_copy(policy)
    siblings, expected = [], []
    for text in texts:
        s = Sequence(ids=ids, mask=[0] * prompt + [1] * num, engine_logprobs=[0.0] * len(ids))
        if text:
            s.constrained = [Constrained(begin=prompt, end=len(ids), grammar=text)]
        with torch.no_grad():
            expected.append(masked_logprobs(model, policy, s, SAMPLING.temperature)[prompt - 1 :])
        siblings.append(
            TrainSequence(
                ids=s.ids,
                mask=s.mask,
                engine_logprobs=s.engine_logprobs,
                constrained=s.constrained,
            )
        )
    assert len({tuple(e.tolist()) for e in expected}) == len(texts)
    trainer = GRPOTrainer(policy, config(), SAMPLING)
    stats = trainer.gradient([siblings])
    [(found, _)] = stats.parts
    true = torch.cat(expected).sort().values
    assert torch.allclose(found.double().sort().values, true, atol=1e-4)
    for sibling, true in zip(siblings, expected, strict=True):
        assert trainer.logprobs(sibling).tolist() == pytest.approx(true.tolist(), abs=1e-4)


def test_a_token_that_its_grammar_does_not_allow_is_found_out(make_policy: MakePolicy) -> None:
    policy = make_policy()
    ids = [7, 8, 9, *policy.tokenizer.encode('"green"', add_special_tokens=False), END]
    wrong = TrainSequence(
        ids=ids,
        mask=[0, 0, 0] + [1] * (len(ids) - 3),
        engine_logprobs=[0.0] * len(ids),
        constrained=[Constrained(begin=3, end=len(ids), grammar=grammar(COLOUR))],
    )
    with pytest.raises(TrainerError, match="does not allow"):
        GRPOTrainer(policy, config(), SAMPLING).logprobs(wrong)


def test_nothing_is_masked_where_no_turn_was_held_to_anything(make_policy: MakePolicy) -> None:
    policy = make_policy()
    groups = held_groups(policy)
    for t in groups[0].trajectories:
        t.sequences[0].constrained = []
    [part] = parts_of(groups)
    assert masks_of(part, policy.grammars) is None


@pytest.mark.slow
def test_a_policy_learns_what_to_say_within_a_schema(make_policy: MakePolicy) -> None:
    """From random weights: all answers are valid from the first, and they become the right ones."""
    schema = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "blue", "green", "black"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    policy, how = make_policy(), SamplingConfig(max_tokens=40)
    engine = TransformersEngine(policy, EngineConfig(), how, frozenset({END}))
    trainer = GRPOTrainer(policy, config(learning_rate=3e-3, max_grad_norm=1.0), how)
    means = []
    for n in range(40):
        found = answers(engine, [[7, 8, 9]] * 32, [grammar(schema)] * 32, seed=1000 * n)
        trajectories = []
        for done in found:
            said = policy.tokenizer.decode(done.token_ids, skip_special_tokens=True)
            value = json.loads(said) if done.finish_reason == "stop" else {"colour": "", "count": 0}
            reward = 0.5 * (value["colour"] == "blue") + 0.5 * (value["count"] >= 50)
            one = Trajectory(scenario=SCENARIO, sequences=[sequence_of([7, 8, 9], done)])
            one.reward = reward
            trajectories.append(one)
        groups = [TrajectoryGroup(trajectories)]
        set_advantages(groups, "mean")
        means.append(sum(t.reward or 0 for t in trajectories) / 32)
        metrics = trainer.step(groups, 0)
        assert metrics.get("loss/logprob_gap", 0) < 1e-4
        asyncio.run(engine.sync(n + 1))
    assert sum(means[:3]) / 3 < 0.6 and sum(means[-3:]) / 3 > 0.9, means
