"""GRPO trainer: optimizer steps on the trajectory groups of one rollout batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from art_cli.config.sections.engine import MAX_MODEL_LEN
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.errors import EngineError, TrainerError
from art_cli.models.saved_weights import damage_told, load_state
from art_cli.system.progress import silent
from art_cli.training.algorithm.loss import Tokens, kl_k3, loss_named
from art_cli.training.algorithm.packing import Microbatch, TrainSequence, pack
from art_cli.training.trainers.base import Update, take_updates
from art_cli.training.trainers.bounded_step import bounded_step
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.forward import Forward, Trainable
from art_cli.training.trainers.masks import masks_of
from art_cli.training.trainers.optimizers import make_optimizer
from art_cli.training.trainers.router_load import AllRanks, RouterLoad
from art_cli.training.trainers.schedule import factor
from art_cli.training.trainers.sequences import training_sequences
from art_cli.training.trainers.stats import Stats
from art_cli.types import TrajectoryGroup

# On-policy, the engine and the trainer must agree on the log-probability of every token. In fp32
# they differ by rounding only. bf16 keeps 8 bits of a logit, so 1e-2 is usual (2510.26788).
MAX_LOGPROB_GAP = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
FURTHEST = 10.0  # nats, cap for a token that became 13 times as likely, or e^11 times less
MAX_CHECKED = 8  # sequences, if nothing of the first batch is trained

Part = list[TrainSequence] | None  # a microbatch; None: take part in collectives only
IDLE = [TrainSequence(ids=[0, 0], mask=[0, 1], engine_logprobs=[0.0, 0.0])]  # of weight 0


class NotFiniteError(TrainerError):
    """A gradient is not finite. The weights are unchanged."""


class GRPOTrainer:
    """Trainer that runs the GRPO update in this process."""

    def __init__(
        self,
        policy: Trainable,
        cfg: TrainConfig,
        sampling: SamplingConfig,
        say: Callable[[str], None] = silent,
        forward: Forward | None = None,
        max_model_len: int = MAX_MODEL_LEN,
        all_ranks: AllRanks | None = None,
    ) -> None:
        """`say` reports messages to the user. `forward` replaces the default forward pass, for
        sharded weights. `all_ranks` sums a tensor over the ranks. `max_model_len` is the engine's,
        in tokens.
        """
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._max_model_len = max_model_len
        self._loss = loss_named(cfg.loss)
        self._clip_low = self._loss.clip_low if cfg.clip_low is None else cfg.clip_low
        self._clip_high = self._loss.clip_high if cfg.clip_high is None else cfg.clip_high
        self._checked = False
        self._kept: tuple[list[TrainSequence], Microbatch] | None = None  # the last one packed
        self._known: list[
            tuple[Part, Tensor]
        ] = []  # logprobs [T] of each part, at the last gradient
        self._say = say
        self._updated = False
        self.budget = TokenBudget(cfg.microbatch_tokens, say, policy.ways.shares)
        self.forward = forward or Forward(policy, sampling.temperature)
        self._routers = RouterLoad(policy.model, cfg.router_aux_loss_coef)
        self._all_ranks = all_ranks

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, created on first use because an evaluation needs none."""
        return make_optimizer(self._policy.trainable, self._cfg)

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Run the updates of this batch (see `take_updates`). Return `loss/*` and `data/*` metrics.

        The groups must have their advantages; `step` counts from 0. Raises EngineError if the first
        batch was not sampled from this policy, TrainerError if the gradient is not finite or memory
        runs out. The weights are then as before that update.
        """

        def update_with(part: list[TrajectoryGroup]) -> Update:
            sequences, counts = training_sequences(part, self._cfg, self._max_model_len)

            def update() -> dict[str, float]:
                stats = self.budget.fit(sequences, self.gradient)
                assert counts.tokens >= stats.tokens
                metrics = self.metrics(stats)
                if stats.tokens:
                    metrics |= self.update(step)
                return metrics

            return update

        metrics = take_updates(groups, self._cfg, update_with)
        self._kept, self._known = None, []
        self.check_sampled(groups, self.logprobs)
        return metrics

    @torch.no_grad()
    def logprobs(self, sequence: TrainSequence) -> Tensor:
        masks = masks_of([sequence], self._policy.grammars)
        batch = pack([sequence], masks=masks).to(self._policy.device)
        return self.forward(batch)[batch.row].cpu()

    def gradient(self, parts: Iterable[Part]) -> Stats:
        """Compute the gradient of these parts of a step. Raises torch.OutOfMemoryError."""
        self.optimizer.zero_grad(set_to_none=True)
        self._routers.begin(self.forward, map(self._packed, parts), self._all_ranks)
        stats, self._known = Stats(), []
        for part in parts:
            batch = self._packed(part)
            logprobs = self._accumulate(batch, Stats() if part is None else stats)
            self._known.append((part, logprobs))
        return stats

    def _packed(self, part: Part) -> Microbatch:
        """Return the part as a microbatch on the device.

        Packing the same part twice in a row reuses the first result, as when a batch of a single
        part is trained on repeatedly.
        """
        if self._kept and self._kept[0] == part:
            return self._kept[1]
        self._kept = None  # its masks may be large
        sequences = IDLE if part is None else part
        masks = masks_of(sequences, self._policy.grammars)
        batch = pack(sequences, self._policy.ways.shares, masks).to(self._policy.device)
        if part is None:
            batch.repeats.zero_()
        else:
            self._kept = part, batch
        return batch

    def _accumulate(self, batch: Microbatch, stats: Stats) -> Tensor:
        """Backpropagate one microbatch. Return the policy's log-probabilities [T]."""
        ref = None
        if self._cfg.kl_coef:
            with torch.no_grad(), self._policy.as_reference():
                ref = self.forward(batch)[batch.row]
        tokens = Tokens(
            engine_logprobs=batch.engine_logprobs,
            advantages=batch.advantages,
            weights=batch.weights,
            unit=batch.unit,
            ref_logprobs=ref,
        )

        def objective(logprobs: Tensor, rows: slice) -> Tensor:
            ends = torch.tensor([rows.start, rows.stop], device=batch.row.device)
            first, last = torch.searchsorted(batch.row, ends).tolist()
            mine = tokens[first:last]
            policy_logprobs = logprobs[batch.row[first:last] - rows.start]
            terms = self._loss.term(policy_logprobs, mine, self._clip_low, self._clip_high)
            if self._cfg.kl_coef:
                kl = kl_k3(policy_logprobs, mine, self._loss.ratio)
                terms = terms + self._cfg.kl_coef * kl
            return (terms * mine.weights).sum()

        with self._routers.watch():
            loss, logprobs = self.forward(batch, objective, by_row=self._loss.by_token)
        whole, router_loss, load = self._routers.add_to(loss, batch)
        whole.backward()
        stats.add_load(router_loss, load)
        policy_logprobs = logprobs[batch.row]
        clipped = self._loss.is_clipped(policy_logprobs, tokens, self._clip_low, self._clip_high)
        stats.add(float(loss.detach()), policy_logprobs, tokens, int(clipped.sum()))
        stats.packed += batch.ids.shape[1]
        return policy_logprobs

    def metrics(self, stats: Stats) -> dict[str, float]:
        """Return the metrics of the step. Raises EngineError if the first is not on-policy."""
        metrics = stats.metrics()
        metrics["data/tokens_trained"] = stats.tokens
        metrics["data/tokens_packed"] = stats.packed
        if stats.tokens:
            self._check_on_policy(metrics["loss/logprob_gap"])
        return metrics

    def update(self, step: int) -> dict[str, float]:
        """Apply the optimizer step, shortened to respect `train.max_kl`. Return its metrics.

        Raises TrainerError if the gradient is not finite or no memory is left for the optimizer.
        """
        if not self._updated and (told := unreached(self._policy.model)):
            self._say(told)
        self._updated = True
        norm = total_norm(self._policy.trainable, self._cfg.max_grad_norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"the gradient of step {step + 1} is not finite; the weights are as before it. "
                "Lower train.learning_rate, or use model.dtype=float32"
            )
        cfg = self._cfg
        scale = factor(cfg.lr_scheduler_type, step, cfg.steps, cfg.warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = cfg.learning_rate * scale
        metrics = {"loss/grad_norm": norm}
        try:
            if cfg.max_kl is None:
                self.optimizer.step()
            else:
                kl, is_shortened = bounded_step(self.optimizer, self._moved, cfg.max_kl)
                metrics |= {"loss/update_kl": kl, "loss/shortened": float(is_shortened)}
        except torch.OutOfMemoryError as e:
            bound = "" if cfg.max_kl is None else "train.max_kl=null or "
            raise TrainerError(
                f"out of memory for the optimizer's state: {e}. Train an adapter, set {bound}"
                "train.optimizer=adamw_8bit, or train on more devices with train.num_processes"
            ) from None
        return metrics

    def _moved(self) -> float:
        """Return the KL between the policies of the last gradient and of now, in nats a token.

        The estimator is k3 (joschu.net/blog/kl-approx.html) on tokens that the older policy
        sampled, so it is unbiased on the first update of a batch. Each token counts for at most
        FURTHEST, which keeps the mean finite.
        """
        sums = torch.zeros(2, device=self._policy.device)
        for part, before in self._known:
            batch = self._packed(part)
            d = self.forward(batch)[batch.row] - before
            if part is not None:
                terms = (torch.expm1(d) - d).clamp(max=FURTHEST)
                sums += torch.stack([terms.sum(), torch.full_like(terms.sum(), len(terms))])
        if self._all_ranks:
            sums = self._all_ranks(sums)
        return float(sums[0] / sums[1])

    def check_sampled(
        self, groups: list[TrajectoryGroup], logprobs: Callable[[TrainSequence], Tensor]
    ) -> None:
        """Check that the first batch is on-policy if it was not trained, by a sequence a group.

        An engine that samples noise earns no reward, so no group has a gradient and `metrics` would
        never check it. Raises EngineError.
        """
        if self._checked:
            return
        sampled = ([s for t in g.trajectories for s in t.sequences if any(s.mask)] for g in groups)
        firsts = [sequences[0] for sequences in sampled if sequences]
        gaps: list[Tensor] = []
        for s in firsts[:MAX_CHECKED]:
            sequence = TrainSequence(
                ids=s.ids,
                mask=s.mask,
                engine_logprobs=s.engine_logprobs,
                constrained=s.constrained,
            )
            engine = torch.tensor([*itertools.compress(s.engine_logprobs, s.mask)])
            gaps.append((logprobs(sequence) - engine).abs())
        if gaps:
            self._check_on_policy(float(torch.cat(gaps).mean()))

    def _check_on_policy(self, gap: float) -> None:
        """Check on the first batch that engine and trainer compute the same distribution."""
        truncated = self._sampling.top_p < 1 or self._sampling.top_k > 0
        bound = MAX_LOGPROB_GAP[self._policy.dtype]
        if not self._checked and not truncated and gap > bound:
            raise EngineError(
                f"the first batch is not on-policy: |policy_logprob - engine_logprob| is {gap:.2g} "
                f"on average, at most {bound:g} is rounding. The engine serves other weights, or "
                "another template, adapter or temperature than the trainer's"
            )
        if not self._checked and self._routers.has_any:
            self._say(
                "a mixture of experts: where two experts are nearly equal, engine and update may "
                f"send a token to different ones. |policy_logprob - engine_logprob| is {gap:.2g} "
                "on average in the first batch (loss/logprob_gap)"
            )
        self._checked = True

    def save(self, file: Path) -> None:
        """Write the optimizer's state. Raises OSError."""
        torch.save(self.optimizer.state_dict(), file)

    def close(self) -> None:
        """See `Trainer`. There is nothing to close."""

    def load(self, file: Path) -> None:
        """Load the state that `save` wrote. Raises CheckpointError if the file is damaged."""
        state = load_state(file)
        with damage_told(file):
            self.optimizer.load_state_dict(state)


def unreached(model: nn.Module) -> str:
    """Return a warning about trainable weights that got no gradient, or ""."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    names = [name for name, p in trained if p.grad is None]
    if not names:
        return ""
    return (
        f"no gradient reaches {len(names)} of {len(trained)} tensors that are trained, the first "
        f"of them {names[0]}; they stay as they are"
    )


def total_norm(params: list[nn.Parameter], highest: float) -> float:
    """Clip the gradients to the norm `highest`. Return the previous norm over all shards."""
    norm = torch.nn.utils.clip_grad_norm_(params, highest)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
