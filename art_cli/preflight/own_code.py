"""The loss and the advantage that a config names as FILE.py:NAME, tried before anything is paid."""

from __future__ import annotations

from art_cli.config.schema import TrainConfig


def check_own_code(train: TrainConfig) -> None:
    """Find what `train.loss` and `train.advantage` name. Raises UsageError with what is wrong.

    torch, which takes seconds to import, is only needed where one of them is the user's own.
    """
    if ":" in train.loss:
        from art_cli.training.algorithm.loss import loss_named

        loss_named(train.loss)
    if ":" in train.advantage:
        from art_cli.training.algorithm.advantage import advantage_named

        advantage_named(train.advantage)
