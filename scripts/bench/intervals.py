"""Test the 95% intervals of `art eval` on evaluations drawn at random: how often do they hold the
truth?

    python scripts/bench/intervals.py --draws 2000

For scenarios whose chances of being passed are all alike, U-shaped, skewed or two-peaked: the share
of draws in which the interval of pass^k, and of a difference to a candidate whose chances are 10%
lower, holds what the chances say.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from art_cli.evaluation.statistics import difference, mean, pass_hat

RNG = np.random.default_rng(0)
CHANCES: dict[str, Callable[[int], np.ndarray]] = {
    "all 0.5": lambda n: np.full(n, 0.5),
    "all 0.9": lambda n: np.full(n, 0.9),
    "all 0.98": lambda n: np.full(n, 0.98),
    "U-shaped": lambda n: RNG.beta(0.5, 0.5, n),
    "mostly easy": lambda n: RNG.beta(8, 2, n),
    "mostly hard": lambda n: RNG.beta(1, 4, n),
    "two peaks": lambda n: np.where(RNG.random(n) < 0.3, 0.95, 0.1),
}


def main() -> None:
    """Print the results as a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    print("| scenarios | chances | trials, k | pass^k | held | difference held |")
    print("|---|---|---|---|---|---|")
    for num in (20, 50, 128):
        for name, chances in CHANCES.items():
            for trials, k in ((1, 1), (4, 1), (4, 4)):
                truth, held, gaps_held = coverage(chances, num, trials, k, draws)
                cells = f"{trials}, {k} | {truth:.3f} | {held:.1%} | {gaps_held:.1%}"
                print(f"| {num} | {name} | {cells} |", flush=True)


def coverage(
    chances: Callable[[int], np.ndarray], num: int, trials: int, k: int, draws: int
) -> tuple[float, float, float]:
    """Return (pass^k, share of intervals that contain it, the same for the difference)."""
    many = chances(1_000_000)
    truth, gap = float((many**k).mean()), float((many**k).mean() * (1 - 0.9**k))
    held = gaps_held = 0
    for _ in range(draws):
        p = chances(num)
        ours, theirs = (_passes(RNG.binomial(trials, q), trials, k) for q in (p, 0.9 * p))
        found, apart = mean(list(ours.values()), share=True), difference(ours, theirs, share=True)
        assert found and apart
        held += found.low <= truth <= found.high
        gaps_held += apart.low <= gap <= apart.high
    return truth, held / draws, gaps_held / draws


def _passes(successes: np.ndarray, trials: int, k: int) -> dict[str, float]:
    return {str(n): pass_hat(int(c), trials, k) for n, c in enumerate(successes)}


if __name__ == "__main__":
    main()
