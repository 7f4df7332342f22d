"""Statistics of an update, summed over its microbatches and ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from art_cli.training.algorithm.load_balance import Load
from art_cli.training.algorithm.loss import Tokens


@dataclass(slots=True)
class Stats:
    """Sums over the microbatches of a step."""

    tokens: int = 0  # sampled tokens that were trained on
    packed: int = 0  # tokens run through the model
    loss: float = 0.0
    clipped: int = 0
    router_loss: float = 0.0  # balancing loss, see load_balance.py
    load: Load | None = None  # of the routers, where there are any
    parts: list[tuple[Tensor, Tokens]] = field(default_factory=list)  # (policy_logprobs, ...)

    def add(self, loss: float, policy_logprobs: Tensor, tokens: Tokens, clipped: int) -> None:
        """Add a microbatch."""
        self.loss += loss
        self.tokens += len(policy_logprobs)
        self.clipped += clipped
        self.parts.append((policy_logprobs, tokens))

    def add_load(self, loss: float, load: Load | None) -> None:
        """Add the routers' balancing loss and load of a microbatch."""
        self.router_loss += loss
        if load:
            self.load = load if self.load is None else self.load + load

    @classmethod
    def sum(cls, each: Iterable[Stats]) -> Stats:
        """Return the sum of the stats of all ranks."""
        total = cls()
        for stats in each:
            total.tokens += stats.tokens
            total.packed += stats.packed
            total.loss += stats.loss
            total.clipped += stats.clipped
            total.add_load(stats.router_loss, stats.load)
            total.parts += stats.parts
        return total

    def cpu(self) -> Stats:
        """Return a copy with its tensors on the CPU, ready to be sent."""
        parts = [(p.cpu(), t.cpu()) for p, t in self.parts]
        return replace(self, parts=parts)

    def metrics(self) -> dict[str, float]:
        """Return the `loss/*` metrics, or {} if nothing was trained."""
        if not self.tokens:
            return {}
        policy = torch.cat([p for p, _ in self.parts])
        logratio = policy - torch.cat([t.engine_logprobs for _, t in self.parts])
        rho = torch.exp(logratio)
        out = {
            "loss/policy": self.loss,
            # The mean of -log pi of the sampled tokens: unbiased on-policy, and needs no extra
            # forward.
            "loss/entropy": float(-policy.mean()),
            "loss/clip_fraction": self.clipped / self.tokens,
            "loss/ratio_mean": float(rho.mean()),
            "loss/ratio_max": float(rho.max()),
            "loss/logprob_gap": float(logratio.abs().mean()),
        }
        if self.load is not None:
            # The most used expert's share of tokens over the mean share; 1 is perfectly balanced.
            out["router/max_load"] = self.load.imbalance
        if self.router_loss:
            out["loss/router_aux"] = self.router_loss
        if self.parts[0][1].ref_logprobs is not None:
            ref = torch.cat([t.ref_logprobs for _, t in self.parts if t.ref_logprobs is not None])
            d = ref - policy
            out["loss/kl"] = float((torch.exp(d) - d - 1).mean())
        return out
