"""Log-probabilities of chosen tokens, without [T, V] logits for the whole sequence.

The forward pass already computes the gradient. The derivative of the loss with respect to a token's
log-probability is known as soon as the log-probability is. So a chunk's logits are turned into the
gradient of its hidden states (and of the head) at once, and are not needed again. Only one chunk of
fp32 logits exists at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from art_cli.chat.grammar.allowed import Allowed
from art_cli.models.forward.head import Head
from art_cli.models.forward.products import product

CHUNK_ELEMENTS = 2**25  # logits alive at once: 128 MB in fp32

# (log-probabilities of these rows, the rows) -> their share of the loss, a scalar
Objective = Callable[[Tensor, slice], Tensor]


def chosen_logprobs(
    hidden: Tensor, head: Head, ids: Tensor, temperature: float, allowed: Allowed | None = None
) -> Tensor:
    """Return log softmax(logits of hidden [S, D] / temperature) at ids [S]: [S], fp32, detached.

    With `allowed`, the softmax is over the allowed tokens only.
    """
    with torch.no_grad():
        parts = [
            _chunk(hidden, head, ids, temperature, allowed, rows)[0]
            for rows in _chunks(len(ids), len(head.weight))
        ]
        return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=torch.float32)


def head_loss(
    hidden: Tensor,
    head: Head,
    ids: Tensor,
    temperature: float,
    objective: Objective,
    by_row: bool = True,
    allowed: Allowed | None = None,
) -> tuple[Tensor, Tensor]:
    """Return (loss, log-probabilities [S] without gradient), see `chosen_logprobs`.

    `objective` computes the loss of rows from their log-probabilities. With `by_row`, a row's share
    depends on that row only, and `objective` is called once per chunk. Otherwise it is called once
    for all rows, after a first pass.
    """
    loss, logprobs = _HeadLoss.apply(
        hidden, head.weight, head.bias, head, ids, temperature, objective, by_row, allowed
    )  # type: ignore[misc]
    return loss, logprobs


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head: Head,
        ids: Tensor,
        temperature: float,
        objective: Objective,
        by_row: bool,
        allowed: Allowed | None,
    ) -> tuple[Tensor, Tensor]:
        grad_hidden = torch.empty_like(hidden)
        grad_weight = torch.zeros_like(weight) if weight.requires_grad else None
        grad_bias = None if bias is None or not bias.requires_grad else torch.zeros_like(bias)
        loss = torch.zeros((), device=hidden.device)
        logprobs = torch.empty(len(ids), device=hidden.device)
        slopes = None
        if not by_row:
            first = chosen_logprobs(hidden, head, ids, temperature, allowed)
            loss, slopes = _slopes(objective, first, slice(0, len(ids)))
        for rows in _chunks(len(ids), len(weight)):
            part = _chunk(hidden, head, ids, temperature, allowed, rows)
            chosen, weights, total, steep = part
            logprobs[rows] = chosen
            if slopes is None:
                share, slope = _slopes(objective, chosen, rows)
                loss += share
            else:
                slope = slopes[rows]
            # d logprob / d logits = onehot - softmax, written into the memory of the logits. Both
            # are 0 for tokens that are not allowed.
            grad = weights.mul_(-slope[:, None] / total)
            grad.scatter_add_(1, ids[rows, None], slope[:, None])
            if temperature != 1:
                grad.div_(temperature)
            if not isinstance(steep, float) or steep != 1:
                grad.mul_(steep)
            grad = grad.to(weight.dtype)
            grad_hidden[rows] = product(grad, weight.T)
            if grad_weight is not None:
                grad_weight.addmm_(grad.T, hidden[rows])
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        ctx.mark_non_differentiable(logprobs)
        return loss, logprobs

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        grad_hidden, grad_weight, grad_bias = ctx.saved_tensors
        if grad_weight is not None:
            grad_weight.mul_(grad_loss)  # in place: it is as large as the head
        if grad_bias is not None:
            grad_bias.mul_(grad_loss)
        return grad_hidden * grad_loss, grad_weight, grad_bias, None, None, None, None, None, None


def _chunks(num_rows: int, vocab: int) -> list[slice]:
    size = max(16, CHUNK_ELEMENTS // vocab)
    return [slice(i, min(i + size, num_rows)) for i in range(0, num_rows, size)]


def _chunk(
    hidden: Tensor,
    head: Head,
    ids: Tensor,
    temperature: float,
    allowed: Allowed | None,
    rows: slice,
) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
    """Return (log-probabilities [S], softmax weights [S, V], their sums [S, 1], `Head.slope`).

    All are for these rows, in fp32. exp is the most expensive part after the matrix product, so it
    is computed once for both results.
    """
    logits = head.logits(hidden[rows])
    steep = head.slope(logits)
    if allowed is not None:
        allowed.restrict(logits, rows)
    if temperature != 1:
        logits = logits.div_(temperature)
    highest = logits.amax(-1, keepdim=True)
    chosen = logits.gather(1, ids[rows, None]) - highest
    weights = logits.sub_(highest).exp_()
    total = weights.sum(-1, keepdim=True)
    return (chosen - total.log())[:, 0], weights, total, steep


def _slopes(objective: Objective, logprobs: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """Return the loss of the rows, and its derivative with respect to each log-probability."""
    with torch.enable_grad():
        leaf = logprobs.detach().requires_grad_()
        loss = objective(leaf, rows)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]
