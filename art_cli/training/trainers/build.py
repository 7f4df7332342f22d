"""Construction of the trainer that the config selects."""

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
    """Check early that this machine can train with this config.

    Return the crew if a launcher started the ranks and all have found each other, else None. Raises
    UsageError, PreflightError.
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
    """Raise UsageError if the model's weights cannot be sharded over ranks."""
    if cfg.train.num_processes > 1 and policy.ways.update != "tree":
        # FSDP gathers weights layer by layer, so all ranks must run the same number of forward
        # passes.
        raise UsageError(
            f"train.num_processes={cfg.train.num_processes} needs a base that is read in one "
            f"forward; with {type(policy.base).__name__}, {policy.ways.in_words(embedded=False)}. "
            "Set it to 1"
        )


def make_trainer(
    cfg: Experiment, policy: Policy, crew: Crew | None, logs: Path, say: Callable[[str], None]
) -> Trainer:
    """Make a trainer in this process, or one that shares the work with other ranks.

    Those ranks are `crew`, or processes started when needed. Raises UsageError if the model's
    weights cannot be sharded.
    """
    longest = cfg.engine.max_model_len
    if cfg.train.num_processes == 1:
        return GRPOTrainer(policy, cfg.train, cfg.sampling, say, max_model_len=longest)
    check_ranks(cfg, policy)
    device = policy.device.type
    if cfg.engine.use == "vllm":
        policy.to("cpu")  # the whole policy computes nothing, and may not fit a GPU
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
