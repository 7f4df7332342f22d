"""The distribution that tokens are sampled from, and the draw."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from art_cli.config.sections.sampling import SamplingConfig


def draw(
    logits: Tensor, which: list[int], sampling: SamplingConfig, uniforms: list[float]
) -> tuple[list[int], list[float]]:
    """Draw a token for each number in [0, 1), from the row of logits [R, V] given by `which`.

    Return the ids and their log-probabilities. Raises FloatingPointError if the logits are not
    finite.
    """
    kept = _cut(logits, sampling)
    highest = kept.amax(-1, keepdim=True)
    cumulative = (kept - highest).exp_().cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:]
    if len(which) == len(logits):  # one draw per row
        places: tuple[Any, ...] = (slice(None), 0)
        points = total.new_tensor(uniforms)[:, None]
    else:
        counts = [0] * len(logits)
        columns: list[int] = []  # index of each draw within its row
        for row in which:
            columns.append(counts[row])
            counts[row] += 1
        places = torch.tensor([which, columns], device=logits.device).unbind()
        points = total.new_zeros(len(logits), max(counts))
        points[places] = total.new_tensor(uniforms)
    points *= total
    points = torch.minimum(points, total.nextafter(torch.zeros_like(total)))  # `*=` may round up
    ids = torch.searchsorted(cumulative, points, right=True).clamp_(max=logits.shape[1] - 1)
    logprobs = (kept.gather(1, ids) - highest - total.log())[places].tolist()
    if not all(map(math.isfinite, logprobs)):
        raise FloatingPointError("the model's logits are not finite")
    return ids[places].tolist(), logprobs


def likeliest(logits: Tensor, sampling: SamplingConfig, num: int) -> dict[int, float]:
    """Return the log-probabilities of the `num` likeliest tokens of a row [1, V], highest first."""
    logprobs = log_distribution(logits, sampling)[0]
    top = logprobs.topk(min(num, len(logprobs)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return {i: p for i, p in pairs if p > -torch.inf}


def log_distribution(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Return the log-probabilities [R, V], fp32, of the distribution that `draw` samples."""
    return torch.log_softmax(_cut(logits, sampling), -1)


def _cut(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Apply temperature and top_k, then keep the smallest set of tokens with probability top_p."""
    scaled = logits.float() / sampling.temperature
    if 0 < sampling.top_k < scaled.shape[1]:
        least = scaled.topk(sampling.top_k, -1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if sampling.top_p < 1:
        ordered, index = scaled.sort(-1, descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        outside = (before >= sampling.top_p).gather(1, index.argsort(-1))
        scaled = scaled.masked_fill(outside, -torch.inf)
    return scaled
