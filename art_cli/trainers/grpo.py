"""One optimizer step on the trajectory groups of one rollout batch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from art_cli.advantage import advantages, has_gradient
from art_cli.config.schema import SamplingConfig, TrainConfig
from art_cli.errors import EngineError, TrainerError
from art_cli.logprobs import chosen_logprobs, head_loss
from art_cli.loss import LOSSES, Counts, Tokens, kl_k3
from art_cli.pack import Microbatch, TrainSequence, microbatches
from art_cli.policy import Policy
from art_cli.trainers.schedule import factor
from art_cli.types import Trajectory, TrajectoryGroup

# On-policy, the engine and the trainer must agree on every token. In fp32 they differ by rounding;
# bf16 keeps 8 bits of a logit, so 1e-2 is usual (2510.26788).
MAX_LOGPROB_GAP = {torch.float32: 1e-3, torch.bfloat16: 5e-2}


class GRPOTrainer:
    """Holds the optimizer; `step` is a function of the groups, the weights and the step number."""

    def __init__(self, policy: Policy, cfg: TrainConfig, sampling: SamplingConfig) -> None:
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._loss = LOSSES[cfg.loss]
        self._clip_low = self._loss.clip_low if cfg.clip_low is None else cfg.clip_low
        self._clip_high = self._loss.clip_high if cfg.clip_high is None else cfg.clip_high
        self._checked = False
        self.optimizer = torch.optim.AdamW(
            policy.trainable,
            lr=cfg.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=cfg.weight_decay,
            fused=True,
        )

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Update the policy once; `step` counts from 0. -> metrics `loss/*` and `data/*`

        Raises EngineError where the first batch was not sampled from this policy, TrainerError
        where the gradient is not finite; the weights are then unchanged.
        """
        sequences, counts = training_sequences(groups, self._cfg, self._sampling)
        self.optimizer.zero_grad(set_to_none=True)
        stats = _Stats()
        for batch in microbatches(sequences, self._cfg.microbatch_tokens):
            self._accumulate(batch.to(self._policy.device), stats)
        metrics = stats.metrics()
        metrics["data/tokens_trained"] = stats.tokens
        metrics["data/tokens_packed"] = stats.packed
        if stats.tokens:
            self._check_on_policy(metrics["loss/logprob_gap"])
            metrics["loss/grad_norm"] = self._update(step)
        assert counts.tokens >= stats.tokens
        return metrics

    def _accumulate(self, batch: Microbatch, stats: _Stats) -> None:
        """Add the gradient of one microbatch."""
        policy, temperature = self._policy, self._sampling.temperature
        ref = None
        if self._cfg.kl_coef:
            with torch.no_grad(), policy.as_reference():
                hidden = self._hidden(batch)
                ref = chosen_logprobs(hidden, policy.head, batch.targets, temperature)[batch.row]
        tokens = Tokens(
            engine_logprobs=batch.engine_logprobs,
            advantages=batch.advantages,
            weights=batch.weights,
            sequence=batch.sequence,
            ref_logprobs=ref,
        )

        def objective(logprobs: Tensor, rows: slice) -> Tensor:
            ends = torch.tensor([rows.start, rows.stop], device=batch.row.device)
            first, last = torch.searchsorted(batch.row, ends).tolist()
            mine = tokens[first:last]
            policy_logprobs = logprobs[batch.row[first:last] - rows.start]
            terms = self._loss.term(policy_logprobs, mine, self._clip_low, self._clip_high)
            if self._cfg.kl_coef:
                terms = terms + self._cfg.kl_coef * kl_k3(policy_logprobs, mine)
            return (terms * mine.weights).sum()

        loss, logprobs = head_loss(
            self._hidden(batch),
            policy.head,
            batch.targets,
            temperature,
            objective,
            by_row=self._loss.by_token,
        )
        loss.backward()
        policy_logprobs = logprobs[batch.row]
        clipped = self._loss.is_clipped(policy_logprobs, tokens, self._clip_low, self._clip_high)
        stats.add(float(loss.detach()), policy_logprobs, tokens, int(clipped.sum()))
        stats.packed += batch.ids.shape[1]

    def _hidden(self, batch: Microbatch) -> Tensor:
        return self._policy.hidden(batch.ids, batch.positions, batch.layout, batch.hidden_at)

    def _update(self, step: int) -> float:
        norm = float(
            torch.nn.utils.clip_grad_norm_(self._policy.trainable, self._cfg.max_grad_norm)
        )
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise TrainerError(
                f"the gradient of step {step + 1} is not finite; the weights are as before it. "
                "Lower train.learning_rate, or use model.dtype=float32"
            )
        cfg = self._cfg
        scale = factor(cfg.schedule, step, cfg.steps, cfg.schedule_warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = cfg.learning_rate * scale
        self.optimizer.step()
        return norm

    def _check_on_policy(self, gap: float) -> None:
        """The first batch proves that engine and trainer mean the same distribution."""
        truncated = self._sampling.top_p < 1 or self._sampling.top_k > 0
        bound = MAX_LOGPROB_GAP[self._policy.head.dtype]
        if not self._checked and not truncated and gap > bound:
            raise EngineError(
                f"the first batch is not on-policy: |policy_logprob - engine_logprob| is {gap:.2g} "
                f"on average, at most {bound:g} is rounding. The engine serves other weights, or "
                "another template, adapter or temperature than the trainer's"
            )
        self._checked = True

    def save(self, file: Path) -> None:
        """Write the optimizer's state. Raises OSError."""
        torch.save(self.optimizer.state_dict(), file)

    def load(self, file: Path) -> None:
        """Go on from what `save` wrote."""
        state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
        self.optimizer.load_state_dict(state)


def training_sequences(
    groups: list[TrajectoryGroup], cfg: TrainConfig, sampling: SamplingConfig
) -> tuple[list[list[TrainSequence]], Counts]:
    """What is trained on, group by group, and the counts that normalise it.

    Groups without a gradient are left out here, before they cost a forward; they stay in the
    counts, so leaving them out changes nothing. With a KL term no group is without one.
    """
    kept = [(g, [t for t in g.valid if _is_trained(t, cfg)]) for g in groups]
    sizes = [[[s.num_sampled for s in t.sequences] for t in trained] for _, trained in kept]
    by_group = [sum(sum(t) for t in group) for group in sizes]
    counts = Counts(
        tokens=sum(by_group),
        sequences=sum(len(t) for group in sizes for t in group),
        groups=sum(n > 0 for n in by_group),
        max_tokens=sampling.max_tokens,
    )
    everyone = advantages([g.rewards for g in groups], cfg.advantage)
    out: list[list[TrainSequence]] = []
    weight = LOSSES[cfg.loss].weight
    for (group, trained), advantage, tokens in zip(kept, everyone, by_group, strict=True):
        if not (has_gradient(group.rewards) or cfg.kl_coef):
            continue
        of = {id(t): a for t, a in zip(group.valid, advantage, strict=True)}
        out.append(
            [
                TrainSequence(
                    ids=s.ids,
                    mask=s.mask,
                    engine_logprobs=s.engine_logprobs,
                    advantage=of[id(t)],
                    weight=weight(counts, tokens, s.num_sampled),
                )
                for t in trained
                for s in t.sequences
            ]
        )
    return out, counts


def _is_trained(trajectory: Trajectory, cfg: TrainConfig) -> bool:
    return not (trajectory.truncated and cfg.overlong == "mask")


class _Stats:
    """Sums over the microbatches of a step."""

    def __init__(self) -> None:
        self.tokens = 0
        self.packed = 0
        self._loss = 0.0
        self._clipped = 0
        self._parts: list[tuple[Tensor, Tokens]] = []

    def add(self, loss: float, policy_logprobs: Tensor, tokens: Tokens, clipped: int) -> None:
        self._loss += loss
        self.tokens += len(policy_logprobs)
        self._clipped += clipped
        self._parts.append((policy_logprobs, tokens))

    def metrics(self) -> dict[str, float]:
        if not self.tokens:
            return {}
        policy = torch.cat([p for p, _ in self._parts])
        logratio = policy - torch.cat([t.engine_logprobs for _, t in self._parts])
        rho = torch.exp(logratio)
        out = {
            "loss/policy": self._loss,
            # The mean of -log pi of what was drawn: unbiased on-policy, and free.
            "loss/entropy": float(-policy.mean()),
            "loss/clip_fraction": self._clipped / self.tokens,
            "loss/ratio_mean": float(rho.mean()),
            "loss/ratio_max": float(rho.max()),
            "loss/logprob_gap": float(logratio.abs().mean()),
        }
        if self._parts[0][1].ref_logprobs is not None:
            ref = torch.cat([t.ref_logprobs for _, t in self._parts if t.ref_logprobs is not None])
            d = ref - policy
            out["loss/kl"] = float((torch.exp(d) - d - 1).mean())
        return out
