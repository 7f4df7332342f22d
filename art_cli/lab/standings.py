"""The result of a comparison, as numbers and as a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from art_cli.evaluation.statistics import Estimate
from art_cli.lab.candidates import Contender
from art_cli.lab.curves import TARGETED, Curve
from art_cli.lab.paired import interval

Curves = list[dict[str, Curve]]  # one dict per seed, by the letter of the candidate
EQUAL = {"step": "after equal steps", "tokens": "after equal tokens", "cpu_s": "after equal CPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The resources with which a candidate reaches a target, as medians over the seeds that do."""

    num: int
    step: float | None  # None: no seed reaches it
    tokens: float | None
    cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A candidate's results over all seeds, compared with the first candidate."""

    letter: str
    label: str
    reward: float  # mean over seeds of the last held-out reward
    worst: float
    area: float
    cpu_s: float  # of training, per run
    num_collapsed: int
    changes: dict[str, Estimate]  # paired with the first, by TARGETED; of the first itself empty
    reached: Reached | None


def standings(
    candidates: Sequence[Contender], curves: Curves, error: float, target: float | None
) -> list[Standing]:
    """Return the standing of each candidate. All comparisons with the first share `error`."""
    share = error / (len(candidates) - 1)
    return [_standing(c, candidates[0].letter, curves, share, target) for c in candidates]


def is_decided(found: Sequence[Standing]) -> bool:
    """Return whether every candidate is known to end better or worse than the first."""
    return all(s.changes["step"].excludes_zero for s in found[1:])


def verdict(found: Sequence[Standing], num_seeds: int, error: float) -> str:
    """Return a sentence for each candidate: better, worse, or not known."""
    first = found[0]
    return "\n".join(_sentence(first, s, num_seeds, error) for s in found[1:])


def as_json(found: Sequence[Standing], num_seeds: int, error: float) -> dict[str, Any]:
    """Return the standings as JSON data, with null for missing bounds."""
    rows = [asdict(s) for s in found]
    for row in rows:
        for change in row["changes"].values():
            change |= {k: None for k in ("low", "high") if abs(change[k]) == float("inf")}
    return {
        "seeds": num_seeds,
        "error": error,
        "candidates": rows,
        "verdict": verdict(found, num_seeds, error),
    }


def _standing(
    candidate: Contender, first: str, curves: Curves, error: float, target: float | None
) -> Standing:
    letter = candidate.letter
    mine = [seed[letter] for seed in curves]
    changes = {}
    if letter != first:
        for axis in TARGETED:
            pairs = [_at_equal(axis, seed[letter], seed[first]) for seed in curves]
            changes[axis] = interval(pairs, error)
    return Standing(
        letter=letter,
        label=candidate.label,
        reward=statistics.fmean(c.last.reward for c in mine),
        worst=min(c.last.reward for c in mine),
        area=statistics.fmean(c.area for c in mine),
        cpu_s=statistics.fmean(c.last.cpu_s for c in mine),
        num_collapsed=sum(c.is_collapsed for c in mine),
        changes=changes,
        reached=None if target is None else _reached(mine, target),
    )


def _at_equal(axis: str, mine: Curve, first: Curve) -> float:
    """Return the reward difference of two runs at equal use of a resource."""
    used = min(getattr(mine.last, axis), getattr(first.last, axis))
    return mine.at(axis, used) - first.at(axis, used)


def _reached(curves: Sequence[Curve], target: float) -> Reached:
    points = [p for c in curves if (p := c.reaches(target))]
    medians = {
        axis: statistics.median(getattr(p, axis) for p in points) if points else None
        for axis in TARGETED
    }
    return Reached(num=len(points), **medians)


def _sentence(first: Standing, other: Standing, num_seeds: int, error: float) -> str:
    change = other.changes["step"]
    said = f"{other.letter} ({other.label})"
    numbers = f"{change.value:+.3f} after equal steps, {num_seeds} paired seeds"
    if change.is_bounded:
        numbers += f", interval [{change.low:+.3f}, {change.high:+.3f}]"
    if change.excludes_zero:
        which = "better" if change.value > 0 else "worse"
        seldom = f"wrong at most {error:.0%} of times"
        return f"{said} is {which} than {first.letter}: {numbers} ({seldom})."
    return f"Not known whether {said} is better or worse than {first.letter}: {numbers}."
