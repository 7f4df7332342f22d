"""The CPU seconds of training until a config's held-out reward first passes a target, beside git.

    python scripts/bench/to_target.py main configs/quickstart.yaml 0.80 --every 5 --seeds 10

This tree and the revision, each with its own version of the config, run a seed side by side, one
thread each. What is counted are the steps (rollouts, scores, updates, what is written of them): no
SFT and no evaluation. A run that never gets there counts as infinitely long.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from first_run import HERE, unpack

# Runs the command, and writes what each evaluation came to, and after how many CPU seconds.
TIMED = """
import json, sys, time
from art_cli import loop
from art_cli.cli.main import main

inner, out, evaluations, counted = loop._evaluate, sys.argv.pop(1), [], 0.0
resumed = None

async def timed(model, *args):
    global counted, resumed
    if resumed is not None:
        counted += time.process_time() - resumed
    result = await inner(model, *args)
    evaluations.append([model.step, counted, result.reward])
    resumed = time.process_time()
    return result

loop._evaluate = timed
try:
    main()
finally:
    with open(out, "w") as file:
        json.dump(evaluations, file)
"""


@dataclass(frozen=True, slots=True)
class Curve:
    """A run's evaluations: step, CPU seconds of training so far, reward."""

    evaluations: list[tuple[int, float, float]]

    def first(self, target: float) -> tuple[float, float]:
        """Return the steps and the CPU seconds to the target."""
        return next(((n, s) for n, s, r in self.evaluations if r >= target), (math.inf, math.inf))

    def __str__(self) -> str:
        _, seconds, reward = self.evaluations[-1]
        return f"{seconds:.1f} s, {reward:.3f}"


def main() -> None:
    """Run each seed in both trees, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", help="of git: what to compare with")
    parser.add_argument("config", help="a path in both trees")
    parser.add_argument("target", type=float)
    parser.add_argument("--every", type=int, default=5, help="steps between evaluations")
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    head = ["seed", "steps", "CPU s", "all, end", "steps", "CPU s", "all, end"]
    print(f"{asked.config} to {asked.target:g}: {asked.revision}, then this tree")
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as both:
        unpack(asked.revision, Path(folder))
        took: list[list[float]] = []
        for seed in range(asked.seeds):
            curves = list(both.map(lambda tree: run(tree, asked, seed), (Path(folder), HERE)))  # noqa: B023
            cells = [str(seed)]
            for curve in curves:
                steps, seconds = curve.first(asked.target)
                cells += [f"{steps:g}", f"{seconds:.1f}", str(curve)]
            print("| " + " | ".join(cells) + " |", flush=True)
            took.append([curve.first(asked.target)[1] for curve in curves])
    before, now = (median(each) for each in zip(*took, strict=True))
    print(f"median CPU s: {before:.1f}, {now:.1f}: {now / before:.2f}")


def run(tree: Path, asked: argparse.Namespace, seed: int) -> Curve:
    """Train, in a folder and with a cache of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out, given = Path(folder, "out.json"), (f"eval.every={asked.every}", f"seed={seed}")
        paths = os.pathsep.join((str(tree), str(tree / "envs")))
        alone = {"PYTHONPATH": paths, "XDG_CACHE_HOME": folder, "OMP_NUM_THREADS": "1"}
        subprocess.run(
            [sys.executable, "-c", TIMED, out, "run", tree / asked.config, *given],
            cwd=folder,
            env=os.environ | alone,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return Curve([tuple(e) for e in json.loads(out.read_text())])


if __name__ == "__main__":
    main()
