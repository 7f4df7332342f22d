"""The section `checkpoint`: what is kept of a run."""

from __future__ import annotations

from dataclasses import dataclass

from art_cli.config.values import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Checkpoints of the policy. The best one by validation always stays."""

    every: Count = 10
    """Steps between two checkpoints. A crash loses what came after the newest."""
    keep: Count = 2
    """How many of the newest stay."""
