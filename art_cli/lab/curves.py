"""The curve of a run: its held-out reward over steps, sampled tokens and CPU seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from art_cli.errors import UsageError
from art_cli.runs.directory import RunDir, step_of
from art_cli.system.untrusted import is_number

FALL = 0.2  # fall of the reward, from the best evaluation to the last, that counts as a collapse
TARGETED = ("step", "tokens", "cpu_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """An evaluation, and the resources that training had used before it."""

    step: float
    tokens: float  # sampled tokens of training
    cpu_s: float  # CPU time of the training process including rollouts, without evaluations
    reward: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The evaluations of a run, in order."""

    points: Sequence[Measured]

    @property
    def last(self) -> Measured:
        """The last evaluation."""
        return self.points[-1]

    @property
    def area(self) -> float:
        """The mean of the reward over all steps, interpolated linearly between evaluations."""
        if self.last.step == self.points[0].step:
            return self.last.reward
        parts = [(b.step - a.step) * (a.reward + b.reward) / 2 for a, b in pairwise(self.points)]
        return sum(parts) / (self.last.step - self.points[0].step)

    @property
    def is_collapsed(self) -> bool:
        """Whether the reward fell by `FALL` or more from its best to the last evaluation."""
        return max(p.reward for p in self.points) - self.last.reward >= FALL

    def at(self, axis: str, value: float) -> float:
        """Return the reward at a value of an axis, interpolated between two evaluations."""
        for a, b in pairwise(self.points):
            low, high = getattr(a, axis), getattr(b, axis)
            if low <= value <= high and high > low:
                return a.reward + (b.reward - a.reward) * (value - low) / (high - low)
        return self.last.reward

    def reaches(self, target: float) -> Measured | None:
        """Return the first evaluation with at least the target reward, or None."""
        return next((p for p in self.points if p.reward >= target), None)


def read_curve(run: RunDir) -> Curve:
    """Return the curve of a finished run. Raise UsageError if it has no evaluation."""
    tokens = cpu = 0.0
    points: list[Measured] = []
    for row in run.read_metrics():
        tokens += _number(row, "data/tokens_sampled")
        cpu += _number(row, "time/cpu_s")
        if is_number(row.get("val/reward")):
            step = float(step_of(row))
            point = Measured(step=step, tokens=tokens, cpu_s=cpu, reward=float(row["val/reward"]))
            points = [*(p for p in points if p.step != step), point]
    if not points:
        raise UsageError(
            f"{run.metrics} has no held-out reward: all evaluations failed, or the file is damaged"
        )
    return Curve(points)


def _number(row: dict[str, Any], key: str) -> float:
    value = row.get(key)
    return float(value) if is_number(value) else 0.0
