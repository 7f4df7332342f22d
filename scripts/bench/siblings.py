"""Count the tokens that siblings have in common: what the embedded engine computes of those it
samples.

    python scripts/bench/siblings.py runs/default/quickstart --every 5

A token costs a row of a decoding step where no sibling has read and said the same before it.
Prints, for batches of a run, the sampled tokens and how many different histories they stand behind.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from art_cli.runs.directory import RunDir


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--every", type=int, default=10, help="batches between those that count")
    asked = parser.parse_args()
    run = RunDir(asked.run)
    print("| batch | sampled tokens | histories | share |\n|---|---|---|---|")
    for step in sorted(run.trajectory_steps("train"))[:: asked.every]:
        sequences = [s for row in run.read_trajectories(step, "train") for s in row["sequences"]]
        known: set[tuple[int, ...]] = set()
        sampled = 0
        for s in sequences:
            places = [i for i, is_sampled in enumerate(s["mask"]) if is_sampled]
            known |= {tuple(s["ids"][:i]) for i in places}
            sampled += len(places)
        print(f"| {step} | {sampled} | {len(known)} | {len(known) / sampled:.2f} |")


if __name__ == "__main__":
    main()
