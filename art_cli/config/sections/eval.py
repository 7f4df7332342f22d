"""The section `eval`: evaluation of the policy during training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from art_cli.config.values import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalConfig:
    """Evaluation on held-out scenarios: before the first step, regularly, and after the last."""

    every: Count = 10
    """Steps between two evaluations."""
    split: Literal["val", "test"] = "val"
    """The split to evaluate. Reserve `test` for the end: `art eval RUN --split test`."""
    episodes: Count = 64
    """The most episodes, one per scenario. Four times as many halve the noise."""
