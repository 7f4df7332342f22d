"""Test `art why`: plant one fault at a time into a run that learns.

    python scripts/bench/faults.py --runs-dir /tmp/faults          # plays what is not there yet
    python scripts/bench/faults.py --runs-dir /tmp/faults --only-report

Each fault, and each healthy run, is a run of the order desk of 21 steps in a process of its
own. Printed: for each fault whether its finding came, and its rank; for each healthy run what was
called serious. The faults themselves are in planted.py, planted_fourth.py and planted_fifth.py.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import planted
from planted import HARMLESS, HEALTHY
from planted_fifth import FIFTH
from planted_fourth import FOURTH

SETS = planted.SETS | {"fourth": FOURTH, "fifth": FIFTH}
FAULTS = planted.FAULTS | FOURTH | FIFTH
CONFIG = Path(__file__).parents[2] / "configs/quickstart.yaml"
WARM = "warm"  # the run whose base after SFT is the base of all others
SIZE = ["train.steps=21", "train.scenarios_per_step=8", "eval.every=7", "eval.episodes=64"]
SIZE += ["train.num_minibatches=1", "train.num_iterations=1"]
LIMIT = 900  # limit of seconds for a run


@dataclass
class Report:
    """The findings of `art why` on one run."""

    name: str
    findings: list[Any] = field(default_factory=list)
    refused: str = ""


def folder_of(name: str) -> str:
    """Return the name of the run."""
    return "".join(c if c.isalnum() else "-" for c in name)


def play_one(name: str, runs_dir: Path, log: Path) -> None:
    """Run one experiment with its fault in this process, and write its output to the log."""
    from art_cli.cli.main import main as art

    half_written = log.with_suffix(".part")
    file = os.open(half_written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)

    fault = FAULTS.get(name) or HARMLESS.get(name)
    overrides = list(fault.overrides) if fault else HEALTHY.get(name, ["train.steps=1"])
    if fault and fault.patch:
        fault.patch()
    if name != WARM and not any("demo" in override for override in overrides):
        base = runs_dir / "faults" / WARM / "base"
        overrides = [f"model.base={base}", "sft=null", *overrides]
    sys.argv = ["art", "run", str(CONFIG), *SIZE, f"name={folder_of(name)}", "project=faults"]
    sys.argv += [*overrides, "--runs-dir", str(runs_dir), "--overwrite", "--yes"]
    try:
        art()
    finally:
        half_written.rename(log)


def play_all(names: list[str], runs_dir: Path, jobs: int) -> None:
    """Run the experiments without a result, `jobs` at a time."""

    def play(name: str) -> None:
        log = runs_dir / f"{folder_of(name)}.log"
        if log.exists():
            return
        process = context.Process(target=play_one, args=(name, runs_dir, log))
        process.start()
        process.join(LIMIT)
        if process.is_alive():
            process.kill()
        said = "ran" if process.exitcode == 0 else "stopped"
        print(f"{name}: {said}", file=sys.stderr, flush=True)

    runs_dir.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["art_cli.backends.local", "art_cli.cli.main", "art_cli.loop"])
    play(WARM)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(play, names))


def examine(name: str, runs_dir: Path) -> Report:
    """Return the report of `art why` on a run."""
    from art_cli.runs.directory import RunDir
    from art_cli.why.diagnose import diagnose
    from art_cli.why.evidence import read_evidence

    report = Report(name)
    run = RunDir(runs_dir / "faults" / folder_of(name))
    if run.config.exists():
        report.findings = diagnose(read_evidence(run))
    log = (runs_dir / f"{folder_of(name)}.log").read_text()
    if "\nerror: " in f"\n{log}":
        report.refused = f"\n{log}".rpartition("\nerror: ")[2].strip().partition("\n")[0]
    return report


def tell_faults(reports: list[Report]) -> None:
    """Print a table for each set of faults: the share found, and misleading findings."""
    for title, names in SETS.items():
        these = [report for report in reports if report.name in names]
        print(f"\n| fault ({title} set) | found | rank | what came |\n|---|---|---|---|")
        ranks: list[int] = []
        for report in these:
            fault, said = FAULTS[report.name], [f.name for f in report.findings]
            stopped = bool(fault.refused) and fault.refused in report.refused
            places = [n for n, name in enumerate(said, 1) if name in fault.expected]
            ranks.append(1 if stopped else places[0] if places else 0)
            what = f"the run stops: {report.refused[:60]}" if stopped else ", ".join(said)
            cells = ["yes" if ranks[-1] else "**no**", str(ranks[-1] or "-"), what or "nothing"]
            print(f"| {report.name} | {' | '.join(cells)} |")
        print(
            f"\n{title} set: {sum(map(bool, ranks))} of {len(ranks)} found, "
            f"{sum(0 < r <= 2 for r in ranks)} among the first two; "
            f"{sum(map(misleads, these))} begin with a serious finding that is wrong"
        )


def misleads(report: Report) -> bool:
    """Return whether the first finding is serious but not the planted fault."""
    first = next(iter(report.findings), None)
    planted = FAULTS[report.name].expected if report.name in FAULTS else ()
    return first is not None and first.weight == "serious" and first.name not in planted


def tell_healthy(reports: list[Report]) -> None:
    """Print the findings on healthy runs."""
    print("\n| healthy run | serious | notable |\n|---|---|---|")
    for report in reports:
        said = {
            w: ", ".join(f.name for f in report.findings if f.weight == w)
            for w in ("serious", "notable")
        }
        print(f"| {report.name} | {said['serious']} | {said['notable']} |")
    wrong = sum(any(f.weight == "serious" for f in r.findings) for r in reports)
    print(f"\nhealthy: {wrong} of {len(reports)} with a serious finding")


def main() -> None:
    """Run the experiments, examine them and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs-dir", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only-report", action="store_true")
    args = parser.parse_args()
    if not args.only_report:
        names = [*FAULTS, *HEALTHY, *HARMLESS]
        play_all(names[::2] + names[1::2], args.runs_dir, args.jobs)
    names = [*FAULTS, *HEALTHY, *HARMLESS]
    there = [n for n in names if (args.runs_dir / f"{folder_of(n)}.log").exists()]
    reports = {name: examine(name, args.runs_dir) for name in there}
    tell_faults([r for n, r in reports.items() if n in FAULTS])
    tell_healthy([r for n, r in reports.items() if n not in FAULTS])


if __name__ == "__main__":
    main()
