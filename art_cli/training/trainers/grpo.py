"""Optimizer steps on the trajectory groups of one rollout batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from art_cli.config.schema import MAX_MODEL_LEN, SamplingConfig, TrainConfig
from art_cli.errors import EngineError, TrainerError
from art_cli.system.progress import silent
from art_cli.training.algorithm.advantage import teaches
from art_cli.training.algorithm.loss import Counts, Tokens, kl_k3, loss_named
from art_cli.training.algorithm.packing import Microbatch, TrainSequence, pack
from art_cli.training.trainers.base import Update, take_updates
from art_cli.training.trainers.budget import TokenBudget
from art_cli.training.trainers.forward import Forward, Trainable
from art_cli.training.trainers.masks import masks_of
from art_cli.training.trainers.optimizers import make_optimizer
from art_cli.training.trainers.router_load import AllRanks, RouterLoad
from art_cli.training.trainers.schedule import factor
from art_cli.training.trainers.stats import Stats
from art_cli.types import Trajectory, TrajectoryGroup

# On-policy, the engine and the trainer must agree on every token. In fp32 they differ by rounding;
# bf16 keeps 8 bits of a logit, so 1e-2 is usual (2510.26788).
MAX_LOGPROB_GAP = {torch.float32: 1e-3, torch.bfloat16: 5e-2}
MAX_CHECKED = 8  # sequences of a first batch of which nothing is trained

Part = list[TrainSequence] | None  # of one microbatch; None: only take part in what all ranks do
IDLE = [TrainSequence(ids=[0, 0], mask=[0, 1], engine_logprobs=[0.0, 0.0])]  # of weight 0


class NotFiniteError(TrainerError):
    """A gradient is not finite; the weights are as they were."""


class GRPOTrainer:
    """Holds the optimizer; `step` is a function of the groups, the weights and the step number."""

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
        """`say` is told what the user should know of; `forward` is one that shards the weights,
        `all_ranks` sums over those who do; `max_model_len` is the engine's."""
        self._policy = policy
        self._cfg = cfg
        self._sampling = sampling
        self._max_model_len = max_model_len
        self._loss = loss_named(cfg.loss)
        self._clip_low = self._loss.clip_low if cfg.clip_low is None else cfg.clip_low
        self._clip_high = self._loss.clip_high if cfg.clip_high is None else cfg.clip_high
        self._checked = False
        self._kept: tuple[list[TrainSequence], Microbatch] | None = None  # packed, and as what
        self._say = say
        self._updated = False
        self.budget = TokenBudget(cfg.microbatch_tokens, say, policy.ways.shares)
        self.forward = forward or Forward(policy, sampling.temperature)
        self._routers = RouterLoad(policy.model, cfg.router_aux_coef)
        self._all_ranks = all_ranks

    @cached_property
    def optimizer(self) -> torch.optim.Optimizer:
        """Made when it is first needed: a run that is only evaluated needs none."""
        return make_optimizer(self._policy.trainable, self._cfg)

    def step(self, groups: list[TrajectoryGroup], step: int) -> dict[str, float]:
        """Take the updates with this batch, see `take_updates`, and return `loss/*` and `data/*`.

        The groups have their advantages; `step` counts from 0. Raise EngineError where the first
        batch was not sampled from this policy, TrainerError where the gradient is not finite or
        memory runs out; the weights are then as before that update.
        """

        def update_with(part: list[TrajectoryGroup]) -> Update:
            sequences, counts = training_sequences(part, self._cfg, self._max_model_len)

            def update() -> dict[str, float]:
                stats = self.budget.fit(sequences, self.gradient)
                assert counts.tokens >= stats.tokens
                metrics = self.metrics(stats)
                if stats.tokens:
                    metrics["loss/grad_norm"] = self.update(step)
                return metrics

            return update

        metrics = take_updates(groups, self._cfg, update_with)
        self._kept = None
        self.check_sampled(groups, self.logprobs)
        return metrics

    @torch.no_grad()
    def logprobs(self, sequence: TrainSequence) -> Tensor:
        masks = masks_of([sequence], self._policy.grammars)
        batch = pack([sequence], masks=masks).to(self._policy.device)
        return self.forward(batch)[batch.row].cpu()

    def gradient(self, parts: Iterable[Part]) -> Stats:
        """Make the gradient of these parts of a step. Raises torch.OutOfMemoryError."""
        self.optimizer.zero_grad(set_to_none=True)
        self._routers.begin(self.forward, map(self._packed, parts), self._all_ranks)
        stats = Stats()
        for part in parts:
            self._accumulate(self._packed(part), Stats() if part is None else stats)
        return stats

    def _packed(self, part: Part) -> Microbatch:
        """Pack a part; one that was the last before it too, a whole batch at its next update, is
        there already."""
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

    def _accumulate(self, batch: Microbatch, stats: Stats) -> None:
        """Add the gradient of one microbatch."""
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

    def metrics(self, stats: Stats) -> dict[str, float]:
        """Return metrics of the whole step. Raise EngineError where the first is not on-policy."""
        metrics = stats.metrics()
        metrics["data/tokens_trained"] = stats.tokens
        metrics["data/tokens_packed"] = stats.packed
        if stats.tokens:
            self._check_on_policy(metrics["loss/logprob_gap"])
        return metrics

    def update(self, step: int) -> float:
        """Take the step along the gradient. Return its norm.

        Raises TrainerError where it is not finite, or no memory is left for the optimizer.
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
        scale = factor(cfg.schedule, step, cfg.steps, cfg.schedule_warmup_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = cfg.learning_rate * scale
        try:
            self.optimizer.step()
        except torch.OutOfMemoryError as e:
            raise TrainerError(
                f"out of memory for the optimizer's state: {e}. Train an adapter, set "
                "train.optimizer=adamw_8bit, or train on more devices with train.num_processes"
            ) from None
        return norm

    def check_sampled(
        self, groups: list[TrajectoryGroup], logprobs: Callable[[TrainSequence], Tensor]
    ) -> None:
        """Check the first batch where nothing of it was trained, by a sequence of each group.

        An engine that answers noise earns nothing, so no group teaches. Raises EngineError.
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
        """Prove on the first batch that engine and trainer mean the same distribution."""
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
        """See Trainer: nothing was started."""

    def load(self, file: Path) -> None:
        """Go on from what `save` wrote."""
        state: dict[str, Any] = torch.load(file, weights_only=True, map_location="cpu")
        self.optimizer.load_state_dict(state)


def training_sequences(
    groups: list[TrajectoryGroup], cfg: TrainConfig, max_model_len: int
) -> tuple[list[list[TrainSequence]], Counts]:
    """Return what is trained on, group by group, and the counts that normalise it.

    The trajectories have their advantages.

    Groups without a gradient are left out here, before they cost a forward; they stay in the
    counts, so leaving them out changes nothing. With a KL term no group is without one.
    """
    kept = [(g, [t for t in g.valid if _is_trained(t, cfg)]) for g in groups]
    by_group = [sum(t.num_sampled for t in trained) for _, trained in kept]
    counts = Counts(
        tokens=sum(by_group),
        trajectories=sum(t.num_sampled > 0 for _, trained in kept for t in trained),
        groups=sum(n > 0 for n in by_group),
        max_model_len=max_model_len,
    )
    loss = loss_named(cfg.loss)
    number = itertools.count()
    out: list[list[TrainSequence]] = []
    for (group, trained), tokens in zip(kept, by_group, strict=True):
        if not (teaches(group) or cfg.kl_coef):
            continue
        out.append([])
        for t in trained:
            of = None if loss.by_token else next(number)
            out[-1] += [
                TrainSequence(
                    ids=s.ids,
                    mask=s.mask,
                    engine_logprobs=s.engine_logprobs,
                    advantages=advantages,
                    weight=loss.weight(counts, tokens, t.num_sampled),
                    trajectory=of,
                    constrained=s.constrained,
                )
                for s, advantages in zip(t.sequences, _advantages(t), strict=True)
            ]
    return out, counts


def _advantages(trajectory: Trajectory) -> list[list[float] | float]:
    """Return the advantages of each of its sequences; of each token, where turns differ."""
    if trajectory.advantage is None:
        raise TrainerError("a trajectory has a reward and no advantage; call set_advantages first")
    if not trajectory.turn_advantages:
        return [trajectory.advantage for _ in trajectory.sequences]
    by_turn = iter(trajectory.turn_advantages)
    out: list[list[float] | float] = []
    for s in trajectory.sequences:
        each = [0.0] * len(s.ids)
        for begin, end in itertools.pairwise([*s.begins, len(s.ids)]):
            each[begin:end] = [next(by_turn)] * (end - begin)
        out.append(each)
    return out


def _is_trained(trajectory: Trajectory, cfg: TrainConfig) -> bool:
    return not (trajectory.truncated and cfg.overlong == "mask")


def unreached(model: nn.Module) -> str:
    """Return what the user should know of weights that are trained and got no gradient."""
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    names = [name for name, p in trained if p.grad is None]
    if not names:
        return ""
    return (
        f"no gradient reaches {len(names)} of {len(trained)} tensors that are trained, the first "
        f"of them {names[0]}; they stay as they are"
    )


def total_norm(params: list[nn.Parameter], highest: float) -> float:
    """Clip the gradients to a norm. Return the norm before, of the shards of all ranks."""
    norm = torch.nn.utils.clip_grad_norm_(params, highest)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)
