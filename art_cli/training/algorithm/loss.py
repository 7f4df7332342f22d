"""Policy-gradient losses: tensors in, tensors out.

All are a sum over the sampled tokens t of one optimizer step,

    loss = sum_t w_t * term_t        rho_t = exp(log pi(y_t) - log mu(y_t))

and differ in the term and in the weights w, which do not depend on the policy. The weights are
computed for the whole step before it is split into microbatches, so the split changes nothing.

A sequence, output or response in the papers is a whole trajectory here: everything that the model
sampled in one rollout. If a trajectory forked into several sequences, its weights and GSPO's ratio
still cover all of its sampled tokens together. docs/losses.md lists the names in other libraries
and explains how to write a custom loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from art_cli.envs.user_code import blaming, named, place_of
from art_cli.errors import UsageError

KEY = "train.loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Per-token inputs of a loss that do not depend on the forward pass. All have shape [T]."""

    engine_logprobs: Tensor  # log mu
    advantages: Tensor
    weights: Tensor
    unit: Tensor  # int64 index of the token's trajectory in the microbatch, see `Microbatch.unit`
    ref_logprobs: Tensor | None = None

    def __getitem__(self, part: slice) -> Tokens:
        """Return a slice of the tokens."""
        ref = self.ref_logprobs
        return Tokens(
            engine_logprobs=self.engine_logprobs[part],
            advantages=self.advantages[part],
            weights=self.weights[part],
            unit=self.unit[part],
            ref_logprobs=None if ref is None else ref[part],
        )

    def cpu(self) -> Tokens:
        """Return a copy on the CPU."""
        ref = self.ref_logprobs
        return Tokens(
            engine_logprobs=self.engine_logprobs.cpu(),
            advantages=self.advantages.cpu(),
            weights=self.weights.cpu(),
            unit=self.unit.cpu(),
            ref_logprobs=None if ref is None else ref.cpu(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of one optimizer step over all ranks, including groups without a gradient."""

    tokens: int  # sampled
    trajectories: int  # with at least one sampled token
    groups: int
    max_model_len: int  # Dr. GRPO's constant length


# Upper bound of the ratio of a token with A < 0 (dual clip, 1912.09729, eq. 5), as in verl. PPO
# does not bound it: once, the first update made a token 93 times as likely, the gradient of the
# second was 200 times as long as usual, and the policy collapsed.
DUAL_CLIP = 3.0

# (policy_logprobs [T], tokens, clip_low, clip_high) -> terms [T]
TermFn = Callable[[Tensor, Tokens, float, float], Tensor]
# (policy_logprobs [T], tokens, clip_low, clip_high) -> True where the clip is in effect [T]
ClippedFn = Callable[[Tensor, Tokens, float, float], Tensor]
# (counts, tokens of the group, tokens of the trajectory) -> weight of each token of the trajectory
WeightFn = Callable[[Counts, int, int], float]
# (policy_logprobs [T], tokens) -> ratio at each token [T]
RatioFn = Callable[[Tensor, Tokens], Tensor]


def token_ratio(policy_logprobs: Tensor, tokens: Tokens) -> Tensor:
    """Return rho of each token, shape [T]."""
    return torch.exp(policy_logprobs - tokens.engine_logprobs)


def trajectory_ratio(policy_logprobs: Tensor, tokens: Tokens) -> Tensor:
    """Return, for each token, the geometric mean of rho over its trajectory, shape [T]."""
    logratio = policy_logprobs - tokens.engine_logprobs
    num = int(tokens.unit.max()) + 1 if len(tokens.unit) else 0
    total = logratio.new_zeros(num).index_add(0, tokens.unit, logratio)
    length = torch.bincount(tokens.unit, minlength=num).clamp(min=1)
    return torch.exp(total / length)[tokens.unit]


def clipped(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """Return -min(rho A, clip(rho, 1 - low, 1 + high) A) per token (PPO, 1707.06347, eq. 7).

    The wider upper bound is DAPO's clip-higher (2503.14476, section 3.1). If A < 0, rho is capped
    at DUAL_CLIP.
    """
    rho = token_ratio(policy_logprobs, tokens)
    return _pessimistic(rho, tokens.advantages, clip_low, clip_high)


def gspo(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """Return `clipped` with one ratio a trajectory: exp(mean_t log rho_t) (2507.18071, eq. 5)."""
    s = trajectory_ratio(policy_logprobs, tokens)
    return _pessimistic(s, tokens.advantages, clip_low, clip_high)


def cispo(policy_logprobs: Tensor, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """Return -sg[min(rho, cap)] A log pi (2506.13585, eq. 4). Every token keeps its gradient.

    `clip_high` is the cap itself. There is no lower bound.
    """
    rho = token_ratio(policy_logprobs.detach(), tokens)
    return -rho.clamp(max=clip_high) * tokens.advantages * policy_logprobs


def kl_k3(policy_logprobs: Tensor, tokens: Tokens, ratio: RatioFn = token_ratio) -> Tensor:
    """Return the KL to the reference, rho (exp(d) - d - 1) with d = log ref - log pi.

    This is Schulman's k3 (joschu.net/blog/kl-approx.html) under the sampler's distribution. The
    ratio is part of the gradient; without it the expected gradient is not that of the KL. `ratio`
    is the loss's own. With GSPO's ratio, one per trajectory, the result is approximate (as in TRL).
    """
    assert tokens.ref_logprobs is not None
    rho = ratio(policy_logprobs, tokens)
    d = tokens.ref_logprobs - policy_logprobs
    return rho * (torch.exp(d) - d - 1)


def _pessimistic(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    bounded = ratio.clamp(max=max(DUAL_CLIP, 1 + high))
    return -torch.minimum(bounded * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def _outside(ratio: Tensor, advantages: Tensor, low: float, high: float) -> Tensor:
    """Return True for tokens whose gradient the clip removes.

    Either the ratio already moved in the intended direction past the bound, or it moved so far in
    the other direction that the token would dominate the gradient.
    """
    is_far = (ratio < 1 - low) | (ratio > max(DUAL_CLIP, 1 + high))
    return ((ratio > 1 + high) & (advantages > 0)) | (is_far & (advantages < 0))


def _clipped_tokens(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return _outside(token_ratio(policy_logprobs, tokens), tokens.advantages, low, high)


def _clipped_whole(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return _outside(trajectory_ratio(policy_logprobs, tokens), tokens.advantages, low, high)


def _capped_tokens(policy_logprobs: Tensor, tokens: Tokens, low: float, high: float) -> Tensor:
    return token_ratio(policy_logprobs, tokens) > high


def _token_mean(n: Counts, group: int, trajectory: int) -> float:
    """Weigh every token of the step equally."""
    return 1 / n.tokens


def _group_mean(n: Counts, group: int, trajectory: int) -> float:
    """Weigh every group equally, and every token within a group (2503.14476, eq. 8 as written)."""
    return 1 / (n.groups * group)


def _sequence_mean(n: Counts, group: int, trajectory: int) -> float:
    """Weigh every trajectory equally, and every token within a trajectory (2402.03300, eq. 3)."""
    return 1 / (n.trajectories * trajectory)


def _constant(n: Counts, group: int, trajectory: int) -> float:
    """Divide by a constant length instead of the real one (2503.20783, section 3.2).

    The constant is the maximum length of a conversation. The paper uses that of a completion, which
    corresponds to all turns of a trajectory here.
    """
    return 1 / (n.trajectories * n.max_model_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss for `train.loss`.

    A custom loss needs only `term`. The defaults are PPO's clip and the mean over all tokens.
    """

    term: TermFn
    weight: WeightFn = _token_mean
    clip_low: float = 0.2
    clip_high: float = 0.28
    is_clipped: ClippedFn = _clipped_tokens
    ratio: RatioFn = token_ratio  # weighs the KL term

    @property
    def by_token(self) -> bool:
        """True if a token's term depends on that token only, not on the rest of its trajectory."""
        return self.ratio is token_ratio


def _clip_loss(weight: WeightFn, clip_high: float) -> Loss:
    """Return PPO's clipped loss with this weighting."""
    return Loss(term=clipped, weight=weight, clip_high=clip_high)


# The three means differ only in their weights. `grpo` and `dr_grpo` use the symmetric clip of their
# papers, `dapo` the wider upper bound. So `grpo` is `sequence_mean` with clip_high=0.2, and `dapo`
# is `token_mean`, as in DAPO's own code, TRL and verl.
LOSSES: dict[str, Loss] = {
    "token_mean": _clip_loss(_token_mean, clip_high=0.28),
    "sequence_mean": _clip_loss(_sequence_mean, clip_high=0.28),
    "group_mean": _clip_loss(_group_mean, clip_high=0.28),
    "grpo": _clip_loss(_sequence_mean, clip_high=0.2),
    "dr_grpo": _clip_loss(_constant, clip_high=0.2),
    "dapo": _clip_loss(_token_mean, clip_high=0.28),
    "gspo": Loss(
        term=gspo,
        weight=_sequence_mean,
        clip_low=3e-4,
        clip_high=4e-4,
        is_clipped=_clipped_whole,
        ratio=trajectory_ratio,
    ),
    "cispo": Loss(term=cispo, clip_low=0.0, clip_high=5.0, is_clipped=_capped_tokens),
}


@lru_cache  # edits to the file during a run have no effect
def loss_named(name: str) -> Loss:
    """Return the loss that `train.loss` names.

    The name is a key of LOSSES, or FILE.py:NAME of a `Loss` or of a function, which becomes its
    `term`. A custom loss is first tried on a few tokens. Raises UsageError.
    """
    found: Any = named(KEY, name, LOSSES)
    loss = (
        found if isinstance(found, Loss) or not callable(found) else Loss(term=cast(TermFn, found))
    )
    if not isinstance(loss, Loss):
        raise UsageError(
            f"{KEY}: {name} is neither a function (policy_logprobs, tokens, clip_low, clip_high) "
            "-> terms nor an art_cli.Loss"
        )
    if name not in LOSSES:
        with blaming(KEY, name, loss.term):
            _try(loss, f"{KEY}: {name} ({place_of(loss.term)})")
    return loss


def _try(loss: Loss, what: str) -> None:
    """Check a loss on two made-up trajectories of three tokens. Raises UsageError."""
    engine = torch.tensor([-0.1, -0.7, -2.0, -0.3, -1.1, -0.2])
    tokens = Tokens(
        engine_logprobs=engine,
        advantages=torch.tensor([1.0, 1.0, 1.0, -0.5, -0.5, -0.5]),
        weights=torch.full((6,), 1 / 6),
        unit=torch.tensor([0, 0, 0, 3, 3, 3]),
    )
    logprobs = (engine + 0.05 * torch.tensor([1, -1, 0, 1, 0, -1])).requires_grad_()
    terms = loss.term(logprobs, tokens, loss.clip_low, loss.clip_high)
    clips = loss.is_clipped(logprobs.detach(), tokens, loss.clip_low, loss.clip_high)
    for said, value in (("the terms", terms), ("is_clipped", clips)):
        if not isinstance(value, Tensor) or value.shape != engine.shape:
            got = f"shape {[*value.shape]}" if isinstance(value, Tensor) else type(value).__name__
            raise UsageError(
                f"{what}: {said} must be a tensor with one value a token, [6]; got {got}"
            )
    if not torch.isfinite(terms).all():
        raise UsageError(f"{what} returned terms that are not finite: {terms.tolist()}")
    if not terms.requires_grad:
        raise UsageError(f"{what} has no gradient: its terms do not depend on policy_logprobs")
    slopes = torch.stack([torch.autograd.grad(t, logprobs, retain_graph=True)[0] for t in terms])
    if not torch.isfinite(slopes).all() or not slopes.any():
        raise UsageError(f"{what} has a gradient that is zero or not finite: {slopes.tolist()}")
    if loss.by_token and (slopes - slopes.diag().diag()).any():
        raise UsageError(
            f"{what}: a token's term depends on other tokens. Make the loss an art_cli.Loss with "
            "ratio=trajectory_ratio, so that a trajectory is not computed in parts"
        )
