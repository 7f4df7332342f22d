"""Measure the rise of the reward on scenarios that training never saw: a config once a seed.

    python scripts/bench/learning.py configs/quickstart.yaml --seeds 5

Prints a Markdown table: mean held-out reward of 512 test scenarios (or what --episodes says) of
turns that are drawn at random from the demonstrations, of the policy before the first update and of
the last checkpoint, with the 95% confidence interval, and the curve of the validation reward over
the run. Wall time and memory are of the whole `art run`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from art_cli.cli.inputs import load

BARS = "▁▂▃▄▅▆▇█"


def main() -> None:
    """Train, evaluate and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("overrides", nargs="*", help="key=value, as for art run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=512)
    args = parser.parse_args()
    print(f"{args.config} {' '.join(args.overrides)}\n")
    print(
        "| seed | random | untrained | trained | change | validation curve | steps | s | peak GB |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    changes, finals = [], []
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            row = run(args.config, args.overrides, seed, args.episodes, Path(folder))
        before, after = (row[who]["metrics"]["reward"] for who in ("untrained", "trained"))
        chance = _cell(row["random"]["metrics"]["reward"]) if row["random"] else "-"
        changes.append(row["trained"]["difference"]["reward"]["value"])
        finals.append(after["value"])
        print(
            f"| {seed} | {chance} | {_cell(before)} | {_cell(after)} | {changes[-1]:+.3f} "
            f"| {row['curve']} | {row['steps']} | {row['seconds']:.0f} | {row['peak_gb']:.2f} |",
            flush=True,
        )
    print(
        f"\nmean trained reward {statistics.fmean(finals):.3f}, smallest change {min(changes):+.3f}"
    )


def run(
    config: Path, overrides: list[str], seed: int, episodes: int, folder: Path
) -> dict[str, Any]:
    """Train with one seed and evaluate on the test split."""
    art = [str(Path(sys.executable).with_name("art"))]
    named = [f"seed={seed}", "project=bench", f"name=seed-{seed}"]
    began = time.monotonic()
    timed = [sys.executable, "-c", PEAK]
    out = subprocess.run(
        [*timed, *art, "run", str(config), *overrides, *named, "--runs-dir", str(folder), "--json"],
        capture_output=True,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(folder)},  # its SFT takes its time, too
    )
    if out.returncode:
        sys.exit(f"seed {seed} failed:\n{out.stderr}")
    seconds = time.monotonic() - began
    run_dir = folder / "bench" / f"seed-{seed}"
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    how = ["--split", "test", "--episodes", str(episodes), "--json"]
    experiment = load([str(config), *overrides]).experiment
    is_shown = experiment.sft is not None and experiment.agent.use == "builtin"
    for who in ("untrained", "last", *["random"] * is_shown):
        how += ["--candidate", who]
    evaluated = subprocess.run(
        [*art, "eval", str(run_dir), *how], stdout=subprocess.PIPE, check=True, text=True
    )
    results = json.loads(evaluated.stdout)
    return {
        "random": results.get("random"),
        "untrained": results["untrained"],
        "trained": results["last"],
        "curve": sparkline([r["val/reward"] for r in rows if "val/reward" in r]),
        "steps": max(r["training_step"] for r in rows),
        "step_s": statistics.median(r["time/step_s"] for r in rows if "time/step_s" in r),
        "seconds": seconds,
        "peak_gb": int(out.stderr.rpartition("peak_kb=")[2]) / 2**20,
    }


# Runs a command, and prints its peak memory to stderr.
PEAK = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(f"peak_kb={resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}", file=sys.stderr)
sys.exit(code)
"""


def sparkline(values: list[float]) -> str:
    """Return the first and last value, with a sparkline between them."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    bars = "".join(BARS[int((v - low) / span * (len(BARS) - 1))] for v in values)
    return f"{values[0]:.2f} {bars} {values[-1]:.2f}"


def _cell(e: dict[str, Any]) -> str:
    return f"{e['value']:.3f} ± {(e['high'] - e['low']) / 2:.3f}"


if __name__ == "__main__":
    main()
