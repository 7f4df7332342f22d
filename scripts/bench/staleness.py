"""Rollouts that run into updates, where the env is slow: what do they bring, and what do they cost?

    python scripts/bench/staleness.py --seeds 5

The quickstart's task with tools that take 200 ms, trained with train.max_staleness 0 and 1 in turn.
Prints the median time of a step, their ratio, and what either has learned: the reward of 512 test
scenarios. Evaluations are not part of a step; while they run, rollouts that are ahead go on.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import learning

HERE = Path(__file__).parent
CONFIG = HERE.parents[1] / "configs" / "quickstart.yaml"


def main() -> None:
    """Run both, seed by seed, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("overrides", nargs="*", help="key=value, as for art run")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    print("| seed | step, 0 | step, 1 | times faster | untrained | trained, 0 | trained, 1 |")
    print("|---|---|---|---|---|---|---|")
    ratios, rewards = [], ([], [])
    for seed in range(args.seeds):
        strict, ahead = (trained(staleness, seed, args.overrides) for staleness in (0, 1))
        before, *after = (
            row[who]["metrics"]["reward"]["value"]
            for row, who in ((strict, "untrained"), (strict, "trained"), (ahead, "trained"))
        )
        ratios.append(strict["step_s"] / ahead["step_s"])
        for kept, reward in zip(rewards, after, strict=True):
            kept.append(reward)
        print(
            f"| {seed} | {strict['step_s']:.2f} s | {ahead['step_s']:.2f} s | {ratios[-1]:.2f} "
            f"| {before:.3f} | {after[0]:.3f} | {after[1]:.3f} |",
            flush=True,
        )
    means = [statistics.fmean(r) for r in rewards]
    print(
        f"\na step is {statistics.median(ratios):.2f} times faster with max_staleness 1; mean "
        f"trained reward {means[0]:.3f} with 0, {means[1]:.3f} with 1"
    )


def trained(staleness: int, seed: int, overrides: list[str]) -> dict:
    """One run."""
    how = [
        f"env.use={HERE / 'slow_desk.py'}:SlowDesk",
        "engine.deterministic=false",
        f"train.max_staleness={staleness}",
        *("train.steps=150", "train.num_minibatches=1", "train.num_iterations=1"),
        *overrides,
    ]
    with tempfile.TemporaryDirectory() as folder:
        return learning.run(CONFIG, how, seed, 512, Path(folder))


if __name__ == "__main__":
    main()
