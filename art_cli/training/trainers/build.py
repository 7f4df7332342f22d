"""The trainer that the config asks for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from art_cli.config.schema import Experiment
from art_cli.errors import UsageError
from art_cli.models.policy import Policy
from art_cli.training.trainers.base import Trainer
from art_cli.training.trainers.distributed.launch import (
    Crew,
    check_devices,
    check_world_size,
    launched,
)
from art_cli.training.trainers.distributed.ranks import RanksTrainer
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.training.trainers.optimizers import check_optimizer


def prepare_training(cfg: Experiment) -> Crew | None:
    """Check that this machine can train so, before anything costs time. Return the ranks that a
    launcher started, which have found this one.

    Raises UsageError, PreflightError.
    """
    check_optimizer(cfg.train)
    num = cfg.train.num_processes
    if place := launched():
        check_world_size(place, num)
        return Crew()
    if num > 1:
        check_devices(num, cfg.model.device)
    return None


def check_ranks(cfg: Experiment, policy: Policy) -> None:
    """Raise UsageError for a model whose weights ranks could not share."""
    if cfg.train.num_processes > 1 and policy.ways.update != "tree":
        # They gather weights layer by layer, and so must run as many forwards as each other.
        raise UsageError(
            f"train.num_processes={cfg.train.num_processes} needs a base that is read in one "
            f"forward; with {type(policy.base).__name__}, {policy.ways.in_words(embedded=False)}. "
            "Set it to 1"
        )


def make_trainer(
    cfg: Experiment, policy: Policy, crew: Crew | None, logs: Path, say: Callable[[str], None]
) -> Trainer:
    """Make a trainer in this process, or shared with `crew` or processes started when needed.

    Raises UsageError for a model whose weights cannot be shared out.
    """
    longest = cfg.engine.max_model_len
    if cfg.train.num_processes == 1:
        return GRPOTrainer(policy, cfg.train, cfg.sampling, say, max_model_len=longest)
    check_ranks(cfg, policy)
    device = policy.device.type
    if cfg.engine.use == "vllm":
        policy.to("cpu")  # nothing is computed with the whole of it, and a GPU may be too small
    return RanksTrainer(
        policy,
        device,
        cfg.model.adapter,
        cfg.train,
        cfg.sampling,
        logs,
        crew,
        say,
        longest,
    )
