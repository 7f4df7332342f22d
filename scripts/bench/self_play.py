"""Measure self-play against the policy that it began with, from each side: a config once a seed.

    python scripts/bench/self_play.py configs/self-play.yaml --seeds 0 1 2

Prints a Markdown table: the share of held-out games (of the test split, sampled at the config's own
temperature) that the policy wins from each seat against the frozen policy of step 0, before the
first update and at the last checkpoint, with the 95% confidence interval. Exit code 1 where the
smallest share is below --least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TRAINED = "last"


def main() -> None:
    """Run, evaluate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", help="key=value, as for art run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--games", type=int, default=400, help="from each seat")
    parser.add_argument("--least", type=float, default=0.7, help="share of games to win")
    args = parser.parse_args()
    print(f"{args.config} {' '.join(args.overrides)}, {args.games} games from each seat\n")
    print("| seed | seat | untrained wins | trained wins | steps | s |")
    print("|---|---|---|---|---|---|")
    shares = []
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            found = run(args.config, args.overrides, seed, args.games, Path(folder))
        before, after = (found[who]["by"]["seat"] for who in ("untrained", TRAINED))
        for seat in before:
            won = after[seat]["pass^1"]
            shares.append(won["value"])
            cells = f"{_cell(before[seat]['pass^1'])} | {_cell(won)}"
            steps = found[TRAINED]["step"]
            print(f"| {seed} | {seat} | {cells} | {steps} | {found['seconds']:.0f} |", flush=True)
    print(f"\nsmallest share of games that the trained policy wins: {min(shares):.3f}")
    sys.exit(min(shares) < args.least)


def run(config: Path, overrides: list[str], seed: int, games: int, folder: Path) -> dict[str, Any]:
    """Train with one seed, and play the test split against the start from both seats."""
    art = [sys.executable, "-m", "art_cli"]
    named = [f"seed={seed}", "project=bench", "name=game", "env.opponents.eval=start"]
    began = time.monotonic()
    training = [*art, "run", str(config), *overrides, *named, "--runs-dir", str(folder), "--json"]
    done = subprocess.run(training, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"seed {seed} failed:\n{done.stderr}")
    seconds = time.monotonic() - began
    how = ["--checkpoint", TRAINED, "--split", "test", "--episodes", str(2 * games), "--json"]
    evaluating = [*art, "eval", str(folder / "bench" / "game"), *how]
    evaluated = subprocess.run(evaluating, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(evaluated.stdout) | {"seconds": seconds}


def _cell(share: dict[str, float]) -> str:
    return f"{share['value']:.3f} [{share['low']:.3f}, {share['high']:.3f}]"


if __name__ == "__main__":
    main()
