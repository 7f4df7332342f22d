"""How far an update moves the policy: told, and bounded."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from batches import SAMPLING, MakePolicy, config, hf_copy, logprobs_of, make_groups
from torch import Tensor

from art_cli.errors import TrainerError
from art_cli.models.policy import Policy
from art_cli.training.trainers.bounded_step import MAX_HALVINGS, bounded_step
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import TrajectoryGroup


def downhill() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    """A weight at 1, whose next step goes to 2."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    weight.grad = torch.tensor([-1.0])
    return weight, torch.optim.SGD([weight], lr=1.0, momentum=0.9)


@pytest.mark.parametrize(
    ("most", "ends_at"),
    [
        (1.0, 2.0),  # as far as it may
        (0.9, 1.5),
        (0.25, 1.5),
        (0.06, 1.125),
        (2.0 ** (-2 * MAX_HALVINGS), 1 + 2.0**-MAX_HALVINGS),
        (2.0 ** (-2 * MAX_HALVINGS - 1), 1.0),  # no nearer than that: taken back
    ],
)
def test_a_step_is_halved_until_it_is_near_enough(most: float, ends_at: float) -> None:
    weight, optimizer = downhill()
    found = bounded_step(optimizer, lambda: (weight.item() - 1) ** 2, most)
    assert found == (1.0, ends_at != 2.0)
    assert weight.item() == ends_at
    assert optimizer.state[weight]["momentum_buffer"] == -1  # of the whole step


@pytest.mark.parametrize("distance", [math.nan, math.inf])
def test_a_step_to_no_number_is_taken_back(distance: float) -> None:
    weight, optimizer = downhill()
    whole, is_shortened = bounded_step(optimizer, lambda: distance, 1.0)
    assert is_shortened and weight.item() == 1.0
    assert not math.isfinite(whole)


def test_where_it_cannot_be_told_how_far_it_goes_no_step_is_taken() -> None:
    weight, optimizer = downhill()

    def distance() -> float:
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        bounded_step(optimizer, distance, 1.0)
    assert weight.item() == 1.0


def kl_by_hand(before: Any, after: Any, groups: list[TrajectoryGroup]) -> float:
    """The mean of r - 1 - log r over the trained tokens, in float64 by transformers' forward."""

    def trained(model: Any) -> Tensor:
        each = []
        for group in groups:
            rewards = {t.reward for t in group.trajectories if t.reward is not None}
            if len(rewards) < 2:  # teaches nothing
                continue
            for s in (s for t in group.valid for s in t.sequences):
                logprobs = logprobs_of(model, s.ids, SAMPLING.temperature)
                each.append(logprobs[torch.tensor(s.mask[1:]).bool()])
        return torch.cat(each)

    with torch.no_grad():
        d = trained(after) - trained(before)
    return float((d.exp() - 1 - d).mean())


@pytest.mark.parametrize("rank", [0, 4], ids=["full", "lora"])
def test_how_far_an_update_went_is_told_and_is_the_kl(make_policy: MakePolicy, rank: int) -> None:
    """And where the bound is not reached, the step is the optimizer's own, bit for bit."""
    policy, free = make_policy(rank), make_policy(rank)
    before, groups = hf_copy(policy), make_groups(policy, noise=0)
    metrics = GRPOTrainer(policy, config(max_kl=1e9), SAMPLING).step(groups, 0)
    untold = GRPOTrainer(free, config(), SAMPLING).step(groups, 0)
    by_hand = kl_by_hand(before, hf_copy(policy), groups)
    assert metrics["loss/update_kl"] == pytest.approx(by_hand, rel=1e-3)
    assert by_hand > 1e-4 and metrics["loss/shortened"] == 0
    assert weights(policy) == weights(free)
    assert untold == {k: metrics[k] for k in untold}
    assert metrics.keys() - untold.keys() == {"loss/update_kl", "loss/shortened"}


@pytest.mark.parametrize("loss", ["token_mean", "gspo"])
def test_an_update_that_goes_too_far_is_halved(make_policy: MakePolicy, loss: str) -> None:
    """So often as it takes, which is more than once; the optimizer remembers the whole step."""
    policy, free = make_policy(), make_policy()
    old, groups = copy.deepcopy(policy.trainable), make_groups(policy, noise=0)
    before = hf_copy(policy)
    whole = GRPOTrainer(free, config(max_kl=1e9, loss=loss), SAMPLING)
    far = whole.step(groups, 0)["loss/update_kl"]
    trainer = GRPOTrainer(policy, config(max_kl=far / 6, loss=loss), SAMPLING)
    metrics = trainer.step(groups, 0)
    assert metrics["loss/update_kl"] == far and metrics["loss/shortened"] == 1
    for a, b, c in zip(old, policy.trainable, free.trainable, strict=True):
        torch.testing.assert_close(b, a + (c - a) / 4, rtol=1e-5, atol=1e-8)
    now = kl_by_hand(before, hf_copy(policy), groups)
    assert far / 6 / 4 < now <= far / 6
    mine, theirs = (t.optimizer.state_dict()["state"] for t in (trainer, whole))
    assert all(torch.equal(mine[i]["exp_avg"], theirs[i]["exp_avg"]) for i in theirs)


@pytest.mark.parametrize("tokens", [1, 100])
def test_how_far_it_went_does_not_depend_on_microbatches(
    make_policy: MakePolicy, tokens: int
) -> None:
    whole, split = make_policy(), make_policy()
    groups = make_groups(whole, noise=0)
    expected = GRPOTrainer(whole, config(max_kl=0.02), SAMPLING).step(groups, 0)
    cfg = config(max_kl=0.02, microbatch_tokens=tokens)
    metrics = GRPOTrainer(split, cfg, SAMPLING).step(groups, 0)
    assert metrics["loss/update_kl"] == pytest.approx(expected["loss/update_kl"], rel=1e-3)
    assert metrics["data/tokens_packed"] > expected["data/tokens_packed"]
    assert metrics["loss/shortened"] == expected["loss/shortened"] == 1
    for a, b in zip(whole.trainable, split.trainable, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_token_that_went_very_far_leaves_the_mean_a_number(make_policy: MakePolicy) -> None:
    policy = make_policy()
    before, groups = weights(policy), make_groups(policy, noise=0)
    metrics = GRPOTrainer(policy, config(learning_rate=50.0), SAMPLING).step(groups, 0)
    assert "loss/update_kl" not in metrics  # so far it was not asked for
    policy = make_policy()
    metrics = GRPOTrainer(policy, config(learning_rate=50.0, max_kl=1e-9), SAMPLING).step(groups, 0)
    assert 1 < metrics["loss/update_kl"] <= 10 and metrics["loss/shortened"] == 1
    assert weights(policy) == before  # six halvings were not enough


def test_out_of_memory_for_what_tells_the_distance_names_the_ways_out(
    make_policy: MakePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    before, groups = weights(policy), make_groups(policy, noise=0)
    trainer = GRPOTrainer(policy, config(max_kl=1.0), SAMPLING)

    def moved() -> float:
        raise torch.OutOfMemoryError("tried to allocate 2 GiB")

    monkeypatch.setattr(trainer, "_moved", moved)
    with pytest.raises(TrainerError, match=r"tried to allocate 2 GiB.*train\.max_kl=null"):
        trainer.step(groups, 0)
    assert weights(policy) == before


def weights(policy: Policy) -> list[list[float]]:
    return [p.detach().flatten().tolist() for p in policy.trainable]
