from __future__ import annotations

import math
from math import exp, log
from pathlib import Path
from typing import get_args

import pytest
import torch
from torch import Tensor

from art_cli.config.sections.train import LossName
from art_cli.errors import UsageError
from art_cli.training.algorithm.loss import (
    LOSSES,
    Counts,
    Tokens,
    cispo,
    clipped,
    gspo,
    kl_k3,
    loss_named,
    trajectory_ratio,
)

# Ratios below, within and above [0.8, 1.28], each with both signs of the advantage.
RHO = [0.5, 0.5, 1.0, 1.0, 1.27, 1.5, 1.5, 9.0]
ADVANTAGE = [2.0, -2.0, 1.0, -1.0, 1.0, 2.0, -2.0, -1.0]
ENGINE = [-1.0, -2.0, -0.5, -3.0, -1.5, -2.5, -3.5, -4.0]
# Two trajectories, 3 and 5 tokens.
UNIT = [0, 0, 0, 1, 1, 1, 1, 1]


def tokens(advantages: list[float] = ADVANTAGE, ref: list[float] | None = None) -> Tokens:
    return Tokens(
        engine_logprobs=torch.tensor(ENGINE, dtype=torch.float64),
        advantages=torch.tensor(advantages, dtype=torch.float64),
        weights=torch.ones(8, dtype=torch.float64),
        unit=torch.tensor(UNIT),
        ref_logprobs=None if ref is None else torch.tensor(ref, dtype=torch.float64),
    )


def policy(rho: list[float] = RHO) -> Tensor:
    logs = [e + log(r) for e, r in zip(ENGINE, rho, strict=True)]
    return torch.tensor(logs, dtype=torch.float64, requires_grad=True)


def test_clipped_is_ppos_pessimistic_bound_with_the_higher_upper_clip() -> None:
    logprobs = policy()
    terms = clipped(logprobs, tokens(), 0.2, 0.28)
    expected = [-1.0, 1.6, -1.0, 1.0, -1.27, -2.56, 3.0, 3.0]
    assert terms.tolist() == pytest.approx(expected, rel=1e-12)
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    # d(-rho A)/dlogpi = -rho A where unclipped; nothing at 1 (too low, A<0), at 5 (too high, A>0)
    # and at 7 (nine times as likely as it was, A<0: the dual clip).
    assert grad.tolist() == pytest.approx([-1.0, 0, -1.0, 1.0, -1.27, 0, 3.0, 0], rel=1e-12)


def test_what_counts_as_clipped_are_the_tokens_without_a_gradient() -> None:
    logprobs = policy()
    (grad,) = torch.autograd.grad(clipped(logprobs, tokens(), 0.2, 0.28).sum(), logprobs)
    found = LOSSES["token_mean"].is_clipped(logprobs.detach(), tokens(), 0.2, 0.28)
    assert found.tolist() == (grad == 0).tolist()
    assert found.nonzero().flatten().tolist() == [1, 5, 7]


def test_an_upper_clip_above_the_dual_clip_is_in_force() -> None:
    terms = clipped(policy(), tokens([1.0] * 7 + [-1.0]), 0.2, 4.0)
    assert terms[[5, 6, 7]].tolist() == pytest.approx([-1.5, -1.5, 5.0], rel=1e-12)


def test_gspo_has_one_ratio_a_trajectory_the_geometric_mean_of_its_tokens() -> None:
    advantages = [1.0] * 3 + [-2.0] * 5
    rho = [1.0002, 1.0, 1.0001, 1.3, 0.9, 1.0, 1.1, 1.0]
    logprobs = policy(rho)
    terms = gspo(logprobs, tokens(advantages), 3e-4, 4e-4)
    s0 = exp((log(1.0002) + log(1.0001)) / 3)
    s1 = exp((log(1.3) + log(0.9) + log(1.1)) / 5)  # above the clip, but the advantage is negative
    assert terms.tolist() == pytest.approx([-s0] * 3 + [2 * s1] * 5, rel=1e-12)
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    # Each of n tokens carries the trajectory's ratio, whose derivative by one logprob is s / n.
    assert grad.tolist() == pytest.approx([-s0] * 3 + [2 * s1] * 5, rel=1e-12)


def test_gspo_clips_whole_trajectories_on_either_side() -> None:
    rho = [1.001] * 3 + [0.999] * 5
    logprobs = policy(rho)
    terms = gspo(logprobs, tokens([1.0] * 3 + [-1.0] * 5), 3e-4, 4e-4)
    assert terms.tolist() == pytest.approx([-1.0004] * 3 + [0.9997] * 5, rel=1e-12)
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    assert grad.tolist() == [0.0] * 8


def test_cispo_caps_the_weight_and_no_token_loses_its_gradient() -> None:
    logprobs = policy()
    terms = cispo(logprobs, tokens(), 0.0, 5.0)
    weight = [min(r, 5.0) * a for r, a in zip(RHO, ADVANTAGE, strict=True)]
    logs = [e + log(r) for e, r in zip(ENGINE, RHO, strict=True)]
    expected = [-w * x for w, x in zip(weight, logs, strict=True)]
    assert terms.tolist() == pytest.approx(expected, rel=1e-12)
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    assert grad.tolist() == pytest.approx([-w for w in weight], rel=1e-12)
    assert weight[-1] == -5.0  # rho was 9


def test_kl_k3_by_hand_and_zero_where_the_policy_is_the_reference() -> None:
    logs = [e + log(r) for e, r in zip(ENGINE, RHO, strict=True)]
    d = [0.0, 0.5, -0.5, 1.0, -1.0, 0.1, 0.0, 2.0]
    terms = kl_k3(policy(), tokens(ref=[x + y for x, y in zip(logs, d, strict=True)]))
    expected = [r * (exp(x) - x - 1) for r, x in zip(RHO, d, strict=True)]
    assert terms.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert abs(terms[0].item()) < 1e-12


def test_kl_k3s_gradient_has_the_ratios_part_in_it() -> None:
    logs = [e + log(r) for e, r in zip(ENGINE, RHO, strict=True)]
    d = [0.0, 0.5, -0.5, 1.0, -1.0, 0.1, 0.0, 2.0]
    logprobs = policy()
    terms = kl_k3(logprobs, tokens(ref=[x + y for x, y in zip(logs, d, strict=True)]))
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    # rho (e^d - d - 1) from the ratio and rho (1 - e^d) from d: together -rho d.
    expected = [-r * x for r, x in zip(RHO, d, strict=True)]
    assert grad.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_kl_of_gspo_is_weighed_by_the_ratio_of_the_trajectory() -> None:
    rho = [1.2, 1.0, 1.1, 0.7, 0.9, 1.0, 1.1, 1.0]
    logs = [e + log(r) for e, r in zip(ENGINE, rho, strict=True)]
    d = [0.0, 0.5, -0.5, 1.0, -1.0, 0.1, 0.0, 2.0]
    known = tokens(ref=[x + y for x, y in zip(logs, d, strict=True)])
    logprobs = policy(rho)
    terms = kl_k3(logprobs, known, LOSSES["gspo"].ratio)
    s = [(1.2 * 1.1) ** (1 / 3)] * 3 + [(0.7 * 0.9 * 1.1) ** (1 / 5)] * 5
    k3 = [exp(x) - x - 1 for x in d]
    expected = [a * b for a, b in zip(s, k3, strict=True)]
    assert terms.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    (grad,) = torch.autograd.grad(terms.sum(), logprobs)
    # From s, which every token of the trajectory moves by s / n, and from d.
    mean = [sum(k3[:3]) / 3] * 3 + [sum(k3[3:]) / 5] * 5
    by_hand = [a * (m + 1 - exp(x)) for a, m, x in zip(s, mean, d, strict=True)]
    assert grad.tolist() == pytest.approx(by_hand, rel=1e-9, abs=1e-9)


def test_only_gspos_terms_depend_on_more_than_their_token() -> None:
    assert [name for name, loss in LOSSES.items() if not loss.by_token] == ["gspo"]
    assert LOSSES["gspo"].ratio is trajectory_ratio


def test_kl_k3s_expected_gradient_is_that_of_the_kl() -> None:
    """Over a whole vocabulary, with the sampler another distribution than the policy."""
    torch.manual_seed(0)
    mu, ref = (torch.randn(7, dtype=torch.float64).log_softmax(0) for _ in range(2))
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    zeros = torch.zeros(7, dtype=torch.float64)
    vocab = Tokens(
        engine_logprobs=mu,
        advantages=zeros,
        weights=zeros,
        unit=zeros.long(),
        ref_logprobs=ref,
    )
    estimate = (mu.exp() * kl_k3(logits.log_softmax(0), vocab)).sum()
    logpi = logits.log_softmax(0)
    kl = (logpi.exp() * (logpi - ref)).sum()
    assert estimate.item() == pytest.approx(kl.item(), rel=1e-9)
    (mine,) = torch.autograd.grad(estimate, logits)
    (true,) = torch.autograd.grad(kl, logits)
    assert torch.allclose(mine, true, rtol=1e-9, atol=1e-12)


def test_on_policy_every_clipped_loss_has_the_plain_policy_gradient() -> None:
    for term in (clipped, gspo, cispo):
        logprobs = torch.tensor(ENGINE, dtype=torch.float64, requires_grad=True)
        advantages = [0.5] * 3 + [-1.5] * 5
        (grad,) = torch.autograd.grad(
            term(logprobs, tokens(advantages), 0.2, 0.28 if term is not cispo else 5.0).sum(),
            logprobs,
        )
        assert grad.tolist() == pytest.approx([-a for a in advantages], rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # A step of 3 groups: trajectories of 4 and 6 tokens; of 5; and of 10 and 15.
        ("token_mean", 1 / 40),
        ("dapo", 1 / 40),
        ("cispo", 1 / 40),
        ("sequence_mean", 1 / (5 * 4)),
        ("grpo", 1 / (5 * 4)),
        ("gspo", 1 / (5 * 4)),
        ("group_mean", 1 / (3 * 10)),
        ("dr_grpo", 1 / (5 * 100)),
    ],
)
def test_the_weight_of_a_token_of_the_first_trajectory(loss: str, expected: float) -> None:
    counts = Counts(tokens=40, trajectories=5, groups=3, max_model_len=100)
    assert LOSSES[loss].weight(counts, 10, 4) == pytest.approx(expected, rel=1e-12)


def test_the_clip_ranges_are_the_papers() -> None:
    ranges = {name: (loss.clip_low, loss.clip_high) for name, loss in LOSSES.items()}
    assert ranges["grpo"] == ranges["dr_grpo"] == (0.2, 0.2)
    assert ranges["dapo"] == (0.2, 0.28)
    assert ranges["token_mean"] == ranges["sequence_mean"] == ranges["group_mean"] == (0.2, 0.28)
    assert ranges["gspo"] == (3e-4, 4e-4)
    assert ranges["cispo"][1] == 5.0


def test_dapo_is_the_one_loss_with_two_names() -> None:
    same = [(a, b) for a in LOSSES for b in LOSSES if a < b and LOSSES[a] == LOSSES[b]]
    assert same == [("dapo", "token_mean")]
    assert set(LOSSES) == set(get_args(LossName))


def test_a_part_of_the_tokens_keeps_every_field_in_step() -> None:
    part = tokens(ref=ENGINE)[2:5]
    assert part.advantages.tolist() == ADVANTAGE[2:5]
    assert part.unit.tolist() == UNIT[2:5]
    assert part.ref_logprobs is not None and part.ref_logprobs.tolist() == ENGINE[2:5]
    assert math.isclose(float(part.weights.sum()), 3.0)


def own(folder: Path, body: str) -> str:
    file = folder / "mine.py"
    file.write_text(
        "import torch\nfrom dataclasses import replace\n"
        "from art_cli.training.algorithm.loss import LOSSES, Loss, trajectory_ratio\n\n\n"
        f"def term(policy_logprobs, tokens, clip_low, clip_high):\n    return {body}\n\n\n"
        "whole = Loss(term=term, ratio=trajectory_ratio)\nnumber = 3\n"
    )
    return f"{file}:term"


def test_a_function_of_ones_own_is_a_term_with_the_default_weights(tmp_path: Path) -> None:
    loss = loss_named(own(tmp_path, "-tokens.advantages * policy_logprobs"))
    default = LOSSES["token_mean"]
    assert (loss.weight, loss.clip_low, loss.clip_high) == (default.weight, 0.2, 0.28)
    terms = loss.term(policy(), tokens(), 0.2, 0.28)
    assert terms.tolist() == (-tokens().advantages * policy()).tolist()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("policy_logprobs.sum()", r"one value a token, \[6\]; got shape \[\]"),
        ("None", "got NoneType"),
        ("policy_logprobs / 0", "not finite"),
        ("tokens.advantages", "has no gradient"),
        ("policy_logprobs * 0", "gradient that is zero"),
        ("policy_logprobs.cumsum(0)", "depends on other tokens. Make the loss an art_cli.Loss"),
        ("torch.ones(3) + policy_logprobs", "mine.py:7: RuntimeError"),
    ],
)
def test_a_loss_that_cannot_be_one_is_told_before_anything_is_sampled(
    tmp_path: Path, body: str, told: str
) -> None:
    with pytest.raises(UsageError, match=f"train.loss: .*mine.py.*{told}"):
        loss_named(own(tmp_path, body))


def test_a_term_of_whole_trajectories_says_so(tmp_path: Path) -> None:
    name = own(tmp_path, "policy_logprobs.cumsum(0)")
    assert not loss_named(name.replace(":term", ":whole")).by_token
    with pytest.raises(UsageError, match="number is neither a function"):
        loss_named(name.replace(":term", ":number"))
