"""The section `checkpoint`: how often to save the policy, and which checkpoints to keep."""

from __future__ import annotations

from dataclasses import dataclass

from art_cli.config.values import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints of the policy. The best one by validation reward is always kept."""

    every: Count = 10
    """Steps between two checkpoints. A crash loses the steps since the newest."""
    keep: Count = 2
    """The number of newest checkpoints to keep."""
