"""Several updates with one batch: of all of it, or of its minibatches in turn."""

from __future__ import annotations

import copy

import pytest
import torch
from batches import SAMPLING, MakePolicy, config, make_groups, teaching_nothing

from art_cli.models.policy import Policy
from art_cli.training.trainers.base import minibatches
from art_cli.training.trainers.grpo import GRPOTrainer

MAX_KL = 0.05
OF_LAST = ("loss/ratio_max", "loss/ratio_mean", "loss/clip_fraction")
LARGEST = ("loss/grad_norm", "loss/update_kl")
TOKENS = ("data/tokens_trained", "data/tokens_packed")


def assert_same_weights(a: Policy, b: Policy) -> None:
    pairs = zip(a.model.parameters(), b.model.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_updates_with_one_batch_are_that_many_steps_with_the_same_groups(
    make_policy: MakePolicy,
) -> None:
    once, thrice = make_policy(), make_policy()
    groups = make_groups(once, noise=0)
    single = GRPOTrainer(once, config(), SAMPLING)
    each = [single.step(groups, 0) for _ in range(3)]
    metrics = GRPOTrainer(thrice, config(num_iterations=3), SAMPLING).step(groups, 0)
    assert_same_weights(once, thrice)
    # The first is on-policy; the ratio of the others is against what was sampled.
    assert each[0]["loss/ratio_max"] == pytest.approx(1, abs=1e-4) != each[2]["loss/ratio_max"]
    expected = each[0] | {k: each[2][k] for k in OF_LAST}
    expected["loss/grad_norm"] = max(m["loss/grad_norm"] for m in each)
    assert metrics == expected | {k: 3 * each[0][k] for k in TOKENS}


def test_a_batch_that_teaches_nothing_takes_no_update_however_many_are_wanted(
    make_policy: MakePolicy,
) -> None:
    policy = make_policy()
    before = copy.deepcopy(policy.base.state_dict())
    groups = [teaching_nothing(group) for group in make_groups(policy, noise=0)]
    metrics = GRPOTrainer(policy, config(num_iterations=4), SAMPLING).step(groups, 0)
    assert metrics["data/tokens_trained"] == 0 and "loss/grad_norm" not in metrics
    assert all(torch.equal(before[k], v) for k, v in policy.base.state_dict().items())


def test_minibatches_take_turns_and_each_is_a_batch_of_its_own(make_policy: MakePolicy) -> None:
    """Two passes over two parts, for three of four groups teach. What is told of the loss is of the
    first update, the longest gradient and step of all, and two of the four steps are shortened."""
    apart, dealt = make_policy(), make_policy()
    groups = make_groups(apart, noise=0)
    parts = [groups[0], groups[3]], [groups[2], groups[1]]  # the second teaches nothing
    single = GRPOTrainer(apart, config(max_kl=MAX_KL), SAMPLING)
    each = [single.step(part, 0) for part in parts * 2]
    cfg = config(num_iterations=2, num_minibatches=3, max_kl=MAX_KL)
    metrics = GRPOTrainer(dealt, cfg, SAMPLING).step(groups, 0)
    assert_same_weights(apart, dealt)
    assert each[0]["loss/ratio_max"] == pytest.approx(1, abs=1e-4)
    expected = each[0] | {k: each[-1][k] for k in OF_LAST}
    expected |= {k: max(m[k] for m in each) for k in LARGEST} | {"loss/shortened": 0.5}
    assert [m["loss/update_kl"] > MAX_KL for m in each].count(True) == 2
    assert metrics == expected | {k: sum(m[k] for m in each) for k in TOKENS}


@pytest.mark.parametrize(
    ("teach", "parts"),
    [
        ("ttttt", ["tt", "tt", "t"]),
        ("tt", ["t", "t"]),  # no update without a group
        ("ttvtt", ["ttv", "tt"]),  # a third of a batch that teaches throughout is more than one
        ("tvvvt", ["ttvvv"]),
        ("vvvvv", ["vvvvv"]),
        ("", [""]),
    ],
)
def test_groups_that_teach_are_dealt_out_evenly_and_fewer_to_fewer_updates(
    make_policy: MakePolicy, teach: str, parts: list[str]
) -> None:
    teaches, *_ = make_groups(make_policy())
    kinds = {"t": teaches, "v": teaching_nothing(teaches)}
    dealt = minibatches([copy.copy(kinds[k]) for k in teach], 3)
    names = {id(group.trajectories): k for k, group in kinds.items()}
    assert ["".join(names[id(g.trajectories)] for g in part) for part in dealt] == parts
