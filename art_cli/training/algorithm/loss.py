"""Policy-gradient losses: tensors in, tensors out.

All are a sum over the sampled tokens t of one optimizer step,

    loss = sum_t w_t * term_t        rho_t = exp(log pi(y_t) - log mu(y_t))

and differ in the term and in the weights w, which do not depend on the policy. The weights are made
for the whole step before it is split into microbatches, so that the split changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What is known of each sampled token before the forward; all are [T]."""

    engine_logprobs: Tensor  # log mu
    advantages: Tensor
    weights: Tensor
    sequence: Tensor  # which sequence of the microbatch it belongs to, int64
    ref_logprobs: Tensor | None = None

    def __getitem__(self, part: slice) -> Tokens:
        """Return some of the tokens, in order."""
        ref = self.ref_logprobs
        return Tokens(
            engine_logprobs=self.engine_logprobs[part],
            advantages=self.advantages[part],
            weights=self.weights[part],
            sequence=self.sequence[part],
            ref_logprobs=None if ref is None else ref[part],
        )

    def cpu(self) -> Tokens:
        """Return these numbers on the CPU."""
        ref = self.ref_logprobs
        return Tokens(
            engine_logprobs=self.engine_logprobs.cpu(),
            advantages=self.advantages.cpu(),
            weights=self.weights.cpu(),
            sequence=self.sequence.cpu(),
            ref_logprobs=None if ref is None else ref.cpu(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The sampled tokens of one optimizer step, of all ranks, groups without gradient included."""

    tokens: int
    sequences: int
    groups: int
    max_tokens: int  # Dr. GRPO's constant length


# (policy_logprobs [T], tokens, clip_low, clip_high) -> terms [T]
TermFn = Callable[[Tensor, Tokens, float, float], Tensor]
# (policy_logprobs [T], tokens, clip_low, clip_high) -> where the clip is in effect [T]
ClippedFn = Callable[[Tensor, Tokens, float, float], Tensor]
# (counts, tokens of the group, tokens of the sequence) -> weight of each token of the sequence
WeightFn = Callable[[Counts, int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A named loss of the config."""

    term: TermFn
    weight: WeightFn
    clip_low: float
    clip_high: float
    is_clipped: ClippedFn
    by_token: bool = True  # a token's term depends on that token alone


def _token_ratio(policy_logprobs: Tensor, tokens: Tokens) -> Tensor:
    return torch.exp(policy_logprobs - tokens.engine_logprobs)


def _sequence_ratio(policy_logprobs: Tensor, tokens: Tokens) -> Tensor:
    """Return the geometric mean over the sequence, at each of its tokens."""
    logratio = policy_logprobs - tokens.engine_logprobs
    num = int(tokens.sequence.max()) + 1 if len(tokens.sequence) else 0
    total = logratio.new_zeros(num).index_add(0, tokens.sequence, logratio)
    length = torch.bincount(tokens.sequence, minlength=num).clamp(min=1)
    return torch.exp(total / length)[tokens.sequence]


def clipped(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """Return -min(rho A, clip(rho, 1 - low, 1 + high) A), PPO's (1707.06347, eq. 7), by token.

    The wider upper bound is DAPO's clip-higher (2503.14476, section 3.1).
    """
    rho = _token_ratio(policy_logprobs, tokens)
    return _pessimistic(rho, tokens.advantages, clip_low, clip_high)


def gspo(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """The same with one ratio a sequence, s = exp(mean_t log rho_t) (2507.18071, eq. 5 and 7)."""
    s = _sequence_ratio(policy_logprobs, tokens)
    return _pessimistic(s, tokens.advantages, clip_low, clip_high)


def cispo(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """Return -sg[min(rho, cap)] A log pi (2506.13585, eq. 4): no token loses its gradient.

    `clip_high` is the cap itself; there is no lower bound.
    """
    rho = _token_ratio(policy_logprobs.detach(), tokens)
    return -rho.clamp(max=clip_high) * tokens.advantages * policy_logprobs


def kl_k3(policy_logprobs: Tensor, tokens: Tokens) -> Tensor:
    """Return the KL to the reference, rho (exp(d) - d - 1) with d = log ref - log pi.

    Schulman's k3 (joschu.net/blog/kl-approx.html) under the sampler's distribution. The ratio is
    part of the gradient: without it the expectation of the gradient is not that of the KL.
    """
    assert tokens.ref_logprobs is not None
    rho = _token_ratio(policy_logprobs, tokens)
    d = tokens.ref_logprobs - policy_logprobs
    return rho * (torch.exp(d) - d - 1)


def _pessimistic(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def _outside(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Where the clip takes the gradient away: only where the ratio already went the right way."""
    return ((ratio > 1 + high) & (advantages > 0)) | ((ratio < 1 - low) & (advantages < 0))


def _clipped_tokens(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return _outside(_token_ratio(policy_logprobs, tokens), tokens.advantages, low, high)


def _clipped_sequences(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return _outside(_sequence_ratio(policy_logprobs, tokens), tokens.advantages, low, high)


def _capped_tokens(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return _token_ratio(policy_logprobs, tokens) > high


LOSSES: dict[str, Loss] = {
    # Every token of the step counts the same (DAPO's token mean, taken over the whole step).
    "grpo": Loss(
        term=clipped,
        weight=lambda n, group, seq: 1 / n.tokens,
        clip_low=0.2,
        clip_high=0.28,
        is_clipped=_clipped_tokens,
    ),
    # A constant length in place of the real one: 2503.20783, section 3.2.
    "dr_grpo": Loss(
        term=clipped,
        weight=lambda n, group, seq: 1 / (n.sequences * n.max_tokens),
        clip_low=0.2,
        clip_high=0.28,
        is_clipped=_clipped_tokens,
    ),
    # The token mean within each group, then the mean over groups: 2503.14476, eq. 8.
    "dapo": Loss(
        term=clipped,
        weight=lambda n, group, seq: 1 / (n.groups * group),
        clip_low=0.2,
        clip_high=0.28,
        is_clipped=_clipped_tokens,
    ),
    "gspo": Loss(
        term=gspo,
        weight=lambda n, group, seq: 1 / (n.sequences * seq),
        clip_low=3e-4,
        clip_high=4e-4,
        is_clipped=_clipped_sequences,
        by_token=False,
    ),
    "cispo": Loss(
        term=cispo,
        weight=lambda n, group, seq: 1 / n.tokens,
        clip_low=0.0,
        clip_high=5.0,
        is_clipped=_capped_tokens,
    ),
}
