"""The loss and the advantage that a config names as FILE.py:NAME, tried before anything is paid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from art_cli.config.load import LoadedExperiment
from art_cli.errors import ConfigError, UsageError

T = TypeVar("T")


def check_own_code(loaded: LoadedExperiment) -> list[str]:
    """Find and try what `train.loss` and `train.advantage` name. Return what the user should know.

    Raises ConfigError with what is wrong. torch, which takes seconds to import, is only needed
    where one of them is the user's own.
    """
    train = loaded.experiment.train
    if ":" in train.loss:
        from art_cli.training.algorithm.loss import loss_named

        _check(loaded, "train.loss", lambda: loss_named(train.loss))
    if ":" in train.advantage:
        from art_cli.training.algorithm.advantage import try_advantage

        doubt = _check(loaded, "train.advantage", lambda: try_advantage(train.advantage))
        return [doubt] if doubt else []
    return []


def _check(loaded: LoadedExperiment, key: str, find: Callable[[], T]) -> T:
    try:
        return find()
    except UsageError as e:
        problem = loaded.problem(key, str(e).removeprefix(f"{key}: "))
        raise ConfigError([str(problem)], problem.pointed()) from None
