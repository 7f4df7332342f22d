"""What a step tells of itself, by numbers that can be checked by hand."""

import math

import pytest
import torch

from art_cli.training.algorithm.loss import Tokens
from art_cli.training.trainers.stats import Stats


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


def tokens(engine: torch.Tensor, ref: torch.Tensor | None) -> Tokens:
    zeros = torch.zeros(len(engine))
    return Tokens(
        engine_logprobs=engine,
        ref_logprobs=ref,
        advantages=zeros,
        weights=zeros,
        unit=zeros.long(),
    )


def step(ref: torch.Tensor | None = None) -> Stats:
    """Three tokens in two microbatches; the policy makes each half as likely as the engine did."""
    first, second = Stats(packed=7), Stats(packed=5)
    first.add(0.5, logs(0.25, 0.5), tokens(logs(0.5, 1.0), None if ref is None else ref[:2]), 1)
    second.add(0.25, logs(0.125), tokens(logs(0.25), None if ref is None else ref[2:]), 0)
    return Stats.sum([first.cpu(), second])


def test_means_are_over_the_tokens_of_all_microbatches() -> None:
    stats = step()
    assert (stats.tokens, stats.packed) == (3, 12)
    assert stats.metrics() == pytest.approx(
        {
            "loss/policy": 0.75,
            "loss/entropy": 2 * math.log(2),  # (2 + 1 + 3) / 3 bits
            "loss/clip_fraction": 1 / 3,
            "loss/ratio_mean": 0.5,
            "loss/ratio_max": 0.5,
            "loss/logprob_gap": math.log(2),
        }
    )


def test_kl_is_k3_of_log_ref_minus_log_policy() -> None:
    found = step(ref=logs(0.5, 0.5, 0.5)).metrics()["loss/kl"]
    two, four = 2 - math.log(2) - 1, 4 - math.log(4) - 1  # of ref / policy = 2, 1 and 4
    assert found == pytest.approx((two + 0 + four) / 3)


def test_a_step_that_trained_nothing_says_nothing() -> None:
    assert Stats().metrics() == {}
