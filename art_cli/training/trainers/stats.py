"""What a step tells of itself: sums over its microbatches, of all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from art_cli.training.algorithm.loss import Tokens


@dataclass(slots=True)
class Stats:
    """Sums over the microbatches of a step."""

    tokens: int = 0  # trained
    packed: int = 0  # run through the model
    loss: float = 0.0
    clipped: int = 0
    parts: list[tuple[Tensor, Tokens]] = field(default_factory=list)  # (policy_logprobs, ...)

    def add(self, loss: float, policy_logprobs: Tensor, tokens: Tokens, clipped: int) -> None:
        """Count a microbatch."""
        self.loss += loss
        self.tokens += len(policy_logprobs)
        self.clipped += clipped
        self.parts.append((policy_logprobs, tokens))

    @classmethod
    def sum(cls, each: Iterable[Stats]) -> Stats:
        """Return the sums over all ranks."""
        total = cls()
        for stats in each:
            total.tokens += stats.tokens
            total.packed += stats.packed
            total.loss += stats.loss
            total.clipped += stats.clipped
            total.parts += stats.parts
        return total

    def cpu(self) -> Stats:
        """Return the same on the CPU, from where it can be sent."""
        parts = [(p.cpu(), t.cpu()) for p, t in self.parts]
        return Stats(self.tokens, self.packed, self.loss, self.clipped, parts)

    def metrics(self) -> dict[str, float]:
        """Return `loss/*`; nothing where nothing was trained."""
        if not self.tokens:
            return {}
        policy = torch.cat([p for p, _ in self.parts])
        logratio = policy - torch.cat([t.engine_logprobs for _, t in self.parts])
        rho = torch.exp(logratio)
        out = {
            "loss/policy": self.loss,
            # The mean of -log pi of what was drawn: unbiased on-policy, and free.
            "loss/entropy": float(-policy.mean()),
            "loss/clip_fraction": self.clipped / self.tokens,
            "loss/ratio_mean": float(rho.mean()),
            "loss/ratio_max": float(rho.max()),
            "loss/logprob_gap": float(logratio.abs().mean()),
        }
        if self.parts[0][1].ref_logprobs is not None:
            ref = torch.cat([t.ref_logprobs for _, t in self.parts if t.ref_logprobs is not None])
            d = ref - policy
            out["loss/kl"] = float((torch.exp(d) - d - 1).mean())
        return out
