"""What a config names of the user's own code, tried before anything is paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from art_cli.config.load import LoadedExperiment
from art_cli.errors import ConfigError, UsageError
from art_cli.rollout.env_worker.remote import env_of
from art_cli.rollout.opponents import check_opponents


def check_own_code(loaded: LoadedExperiment) -> None:
    """Find what `train.loss` and `train.advantage` name, and the seats of a game's opponents.

    Raises ConfigError with what is wrong. torch, which takes seconds to import, is only needed
    where one of the first two is the user's own.
    """
    train = loaded.experiment.train
    if ":" in train.loss:
        from art_cli.training.algorithm.loss import loss_named

        _check(loaded, "train.loss", lambda: loss_named(train.loss))
    if ":" in train.advantage:
        from art_cli.training.algorithm.advantage import advantage_named

        _check(loaded, "train.advantage", lambda: advantage_named(train.advantage))
    env, settings = loaded.experiment.env, loaded.env_settings
    seats = env.opponents, env_of(env), settings
    _check(loaded, "env.opponents", lambda: check_opponents(*seats))


def _check(loaded: LoadedExperiment, key: str, find: Callable[[], Any]) -> None:
    try:
        find()
    except UsageError as e:
        problem = loaded.problem(key, str(e).removeprefix(f"{key}: "))
        raise ConfigError([str(problem)], problem.pointed()) from None
