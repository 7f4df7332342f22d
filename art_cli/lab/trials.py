"""The runs of a comparison: one a candidate and seed, each an `art run` of its own.

A process a run: nothing of one can leak into the next, and what is interrupted goes on like any
other run. Runs that are done are not run again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from art_cli.errors import EXIT_INTERRUPTED, Interrupted, UsageError
from art_cli.lab.candidates import Contender
from art_cli.lab.curves import Curve, read_curve
from art_cli.runs.directory import RunDir
from art_cli.system.progress import Report

TOLD = 15  # lines of what a run that failed has said


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """Where the runs are, and how many go on at once."""

    project: str
    runs_dir: Path
    jobs: int

    @property
    def folder(self) -> Path:
        """The folder of all of them."""
        return self.runs_dir / self.project

    def of_seed(
        self, candidates: Sequence[Contender], seed: int, report: Report
    ) -> dict[str, Curve]:
        """Run all candidates with a seed, as far as that is still to do; return their curves.

        Raises UsageError where a run fails, with what it said; Interrupted where one is stopped.
        """

        def curve(candidate: Contender) -> Curve:
            run = RunDir(self.folder / f"{candidate.letter}-{seed}")
            status = run.read_status()
            if status is None or status.state != "done":
                report(f"seed {seed}: training {candidate.letter} (art logs {run.root})")
                self._run(candidate, seed, run)
            return read_curve(run)

        with ThreadPoolExecutor(self.jobs) as pool:
            curves = pool.map(curve, candidates)
            return {c.letter: found for c, found in zip(candidates, curves, strict=True)}

    def _run(self, candidate: Contender, seed: int, run: RunDir) -> None:
        own = [f"project={self.project}", f"name={run.root.name}", f"seed={seed}"]
        flags = ["--runs-dir", str(self.runs_dir), *(["--resume"] if run.is_begun() else [])]
        done = subprocess.run(
            [sys.executable, "-m", "art_cli", "run", *candidate.words, *own, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode == EXIT_INTERRUPTED:
            raise Interrupted(f"{run.root} was stopped; the same command goes on with it")
        if done.returncode:
            said = "\n".join(done.stdout.splitlines()[-TOLD:])
            raise UsageError(
                f"{candidate.letter} ({candidate.label}) failed with seed {seed}, exit code "
                f"{done.returncode}. It said:\n{said}\n"
                "The runs that are done stay; the same command goes on."
            )
