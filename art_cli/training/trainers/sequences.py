"""Conversion of trajectory groups into the sequences that an update trains on."""

from __future__ import annotations

import itertools

from art_cli.config.sections.train import TrainConfig
from art_cli.errors import TrainerError
from art_cli.training.algorithm.advantage import teaches
from art_cli.training.algorithm.loss import Counts, loss_named
from art_cli.training.algorithm.packing import TrainSequence
from art_cli.types import Trajectory, TrajectoryGroup


def training_sequences(
    groups: list[TrajectoryGroup], cfg: TrainConfig, max_model_len: int
) -> tuple[list[list[TrainSequence]], Counts]:
    """Return the sequences to train on, by group, and the counts that normalize the loss.

    The trajectories must have their advantages.

    Groups without a gradient are left out, which saves their forward pass. They stay in the counts,
    so the gradient does not change. With a KL term every group has a gradient.
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
    """Return the advantage of each sequence, or of each of its tokens if turns differ."""
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
    return not (trajectory.truncated and cfg.mask_truncated_completions)
