"""Measure the first command, `art run configs/quickstart.yaml`, beside a revision of git.

    python scripts/bench/first_run.py main        this tree and `main`, alternately, 3 runs each
    python scripts/bench/first_run.py v1 --runs 1 seed=2

Each run has an empty cache, so that SFT is in it. Prints the least CPU seconds (user and
system, of the whole process tree) of each part of the run, and their ratio. Other jobs on the
machine make CPU seconds longer: the ratio is what to read, not the seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[2]
PARTS = ("imports", "SFT", "evaluations", "rollouts", "updates", "end", "other")

# Runs the command, and writes the time of each part in this process.
TIMED = """
import json, sys, time
from art_cli.cli import run
import art_cli.backends.local
from art_cli import loop
from art_cli.training import model
from art_cli.training.trainers import sft
from art_cli.cli.main import main

took = {"imports": time.process_time(), "SFT": 0, "evaluations": 0, "updates": 0, "end": 0}

def add(part, began):
    took[part] += time.process_time() - began

def time_call(where, name, part):
    inner = getattr(where, name)
    def timed(*args, **named):
        began = time.process_time()
        try:
            return inner(*args, **named)
        finally:
            add(part, began)
    async def awaited(*args, **named):
        began = time.process_time()
        try:
            return await inner(*args, **named)
        finally:
            add(part, began)
    setattr(where, name, awaited if inner.__code__.co_flags & 0x80 else timed)

time_call(sft, "_step", "SFT")
time_call(loop, "_evaluate", "evaluations")
time_call(model.TrainableModel, "update", "updates")
time_call(run, "_report", "end")
out = sys.argv.pop(1)
try:
    main()
finally:
    with open(out, "w") as file:
        json.dump(took, file)
"""


def main() -> None:
    """Run both, alternately, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", help="of git: what to compare with")
    parser.add_argument("overrides", nargs="*", help="key=value, as for art run")
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder)
        unpack(asked.revision, before)
        took: dict[Path, list[dict[str, float]]] = {before: [], HERE: []}
        for _ in range(asked.runs):
            for tree, of_tree in took.items():
                of_tree.append(one_run(tree, asked.overrides))
    print(f"| CPU s | {asked.revision} | this tree | ratio |\n|---|---|---|---|")
    for part in (*PARTS, "all"):
        old, new = (min(run[part] for run in took[tree]) for tree in (before, HERE))
        print(f"| {part} | {old:.1f} | {new:.1f} | {new / old:.2f} |")


def unpack(revision: str, folder: Path) -> None:
    """Write the files of a revision."""
    packed = subprocess.run(
        ["git", "archive", revision], cwd=HERE, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "x"], cwd=folder, input=packed.stdout, check=True)


def one_run(tree: Path, overrides: list[str]) -> dict[str, float]:
    """Return the CPU seconds of each part of a run, and in total."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "took.json")
        paths = os.pathsep.join((str(tree), str(tree / "envs")))
        began = _children()
        subprocess.run(
            [sys.executable, "-c", TIMED, out, "run", tree / "configs/quickstart.yaml", *overrides],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths, "XDG_CACHE_HOME": folder},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        took: dict[str, float] = json.loads(out.read_text()) | {"all": _children() - began}
        rows = Path(folder, "runs/default/quickstart/metrics.jsonl").read_text().splitlines()
        steps = sum(json.loads(row).get("time/cpu_s", 0.0) for row in rows)
    took["rollouts"] = steps - took["updates"]  # with scores, syncs and what is written of a step
    took["other"] = took["all"] - sum(took[part] for part in PARTS[:-1])
    return took


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
