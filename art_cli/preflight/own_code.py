"""What a config names of the user's own code, tried before anything is paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from art_cli.config.load import LoadedExperiment
from art_cli.config.opponents import opponents_saved
from art_cli.errors import ConfigError, UsageError
from art_cli.rollout.env_worker.remote import env_of
from art_cli.rollout.groups import scenarios_in
from art_cli.rollout.opponents import check_opponents
from art_cli.runs.directory import RunDir
from art_cli.runs.opponents import saved_opponent

T = TypeVar("T")


def check_own_code(loaded: LoadedExperiment, run: RunDir | None = None) -> list[str]:
    """Try what `train.loss`, `train.advantage`, `train.curriculum` and `env.opponents` name.

    `run` is one that goes on: it has noted its opponents. Return what the user should know. Raises
    ConfigError with what is wrong, CheckpointError for an opponent whose files are damaged. torch,
    which takes seconds to import, is only needed where one of the first three is the user's own.
    """
    cfg, settings = loaded.experiment, loaded.env_settings
    train, told = cfg.train, []
    if ":" in train.loss:
        from art_cli.training.algorithm.loss import loss_named

        _check(loaded, "train.loss", lambda: loss_named(train.loss))
    if ":" in train.advantage:
        from art_cli.training.algorithm.advantage import try_advantage

        doubt = _check(loaded, "train.advantage", lambda: try_advantage(train.advantage))
        told += [doubt] if doubt else []
    if ":" in train.curriculum:
        _check(loaded, "train.curriculum", lambda: _try_sampler(loaded))
    opponents = cfg.env.opponents
    _check(loaded, "env.opponents", lambda: check_opponents(opponents, env_of(cfg.env), settings))
    for key, who in opponents_saved(opponents).items():
        _check(loaded, key, lambda key=key, who=who: saved_opponent(key, who, run))
    return told


def _try_sampler(loaded: LoadedExperiment) -> None:
    from art_cli.training.curriculum.build import try_sampler

    cfg = loaded.experiment
    scenarios = scenarios_in(env_of(cfg.env), loaded.env_settings, "train")
    try_sampler(cfg.train.curriculum, scenarios, cfg.seed, cfg.train.scenarios_per_step)


def _check(loaded: LoadedExperiment, key: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except UsageError as e:
        problem = loaded.problem(key, str(e).removeprefix(f"{key}: "))
        raise ConfigError([str(problem)], problem.pointed()) from None
