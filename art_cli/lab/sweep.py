"""A sweep: trials of points of a space, the bad ones stopped early, the good ones to their end.

Trials are run with seeds that `art compare` does not use, so that a comparison of the best with the
config that it came from has none of the luck in training by which it was chosen.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from art_cli.errors import EXIT_PREFLIGHT, PreflightError, UsageError, did_you_mean
from art_cli.lab.candidates import identity_of
from art_cli.lab.fleet import Ended, Fleet, never
from art_cli.lab.space import Space, overrides
from art_cli.lab.study import Study, TrialRecord
from art_cli.runs.directory import RunDir, step_of
from art_cli.system.progress import Report
from art_cli.system.untrusted import is_number

FIRST_SEED = 1000  # `art compare` uses the seeds below
FIRST = 3  # if this number of first trials all fail, the cause is not their values
VAL = "val/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The aim of a sweep: the highest final value of a metric, averaged over seeds."""

    metric: str
    num_seeds: int

    @property
    def seeds(self) -> range:
        """The seeds of every trial."""
        return range(FIRST_SEED, FIRST_SEED + self.num_seeds)


def identity(space: Space, aim: Aim) -> str:
    """Return a text that identifies the sweep: configs, their code, ranges, metric and seeds."""
    ranges = [asdict(axis) for axis in space.axes]
    text = json.dumps([identity_of(space.loaded), ranges, asdict(aim)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def first_rung(space: Space, aim: Aim) -> int:
    """Return the step at which trials are first compared. Raise UsageError if the metric never
    occurs.
    """
    cfg = space.loaded.experiment
    if cfg.eval is None and aim.metric.startswith(VAL):
        raise UsageError(f"--metric {aim.metric}: nothing is evaluated, as eval is null")
    return cfg.eval.every if cfg.eval else max(1, cfg.train.steps // 9)


def check_metric(run: RunDir, metric: str) -> None:
    """Raise UsageError if the evaluations of a run do not have the metric."""
    rows = run.read_metrics() if metric.startswith(VAL) else []
    evaluated = [row for row in rows if "val/reward" in row]
    if evaluated and all(metric not in row for row in evaluated):
        known = sorted(key for key in evaluated[-1] if key.startswith(VAL))
        near = did_you_mean(metric, known) or f" There is: {', '.join(known)}."
        raise UsageError(f"--metric {metric}: {run.metrics} has no such metric.{near}")


def read_values(run: RunDir, metric: str) -> dict[int, float]:
    """Return the metric of a run by step, without the untrained policy's."""
    rows = [row for row in run.read_metrics() if is_number(row.get(metric))]
    return {step_of(row): float(row[metric]) for row in rows if step_of(row) > 0}


class Sweep:
    """Runs the trials of a study, with the fleet's number of concurrent runs."""

    def __init__(
        self,
        study: Study,
        fleet: Fleet,
        space: Space,
        aim: Aim,
        report: Report,
        tell: Callable[[TrialRecord], None],
    ) -> None:
        """Call `report` with progress, and `tell` with each trial that has ended."""
        self._study, self._fleet, self._space, self._aim = study, fleet, space, aim
        self._report, self._tell = report, tell
        self._lock = threading.Lock()
        self._num_ended = 0

    def go_on(self) -> None:
        """Run the remaining trials.

        Raise UsageError if the first ones all fail, PreflightError if this machine cannot run any,
        and Interrupted or KeyboardInterrupt, after which the same command continues.
        """
        self._fleet.side_by_side(self._work, range(self._fleet.jobs))

    def _work(self, _: int) -> None:
        while trial := self._study.next():
            if trial.state == "running":
                self._run(trial)
            with self._lock:
                self._num_ended += 1
                self._tell(self._study.record(trial.number))
                self._check_any_is_good(self._study.table())

    def _run(self, trial: TrialRecord) -> None:
        values: list[float] = []
        for seed in self._aim.seeds:
            words = [*self._space.words, *overrides(trial.point), f"seed={seed}"]
            run = self._fleet.run_dir(f"{trial.name}-{seed}")
            self._report(f"training {trial.name} with seed {seed} (art logs {run.root})")
            # A trial is stopped or continued by its first seed; the other seeds run after that one
            # succeeds.
            is_judged = not values
            watch = (lambda run: self._is_hopeless(trial, run)) if is_judged else never
            ended = self._fleet.train(run.root.name, words, watch)
            if ended.code:
                return self._note_end(trial, ended)
            if is_judged:
                self._is_hopeless(trial, run)  # what came after the last look: others need it
            found = read_values(run, self._aim.metric)
            if not found or not math.isfinite(found[max(found)]):
                said = f"{run.root} has no {self._aim.metric} at its end"
                return self._study.fail(trial.number, said)
            values.append(found[max(found)])
        return self._study.end(trial.number, tuple(values))

    def _is_hopeless(self, trial: TrialRecord, run: RunDir) -> bool:
        """Report new values of a run. Return whether to stop the trial."""
        check_metric(run, self._aim.metric)
        new = [
            self._study.report(trial.number, step, value)
            for step, value in read_values(run, self._aim.metric).items()
            if math.isfinite(value)
        ]
        return any(new)

    def _note_end(self, trial: TrialRecord, ended: Ended) -> None:
        if ended.is_stopped:
            return self._study.stop(trial.number)
        if ended.code == EXIT_PREFLIGHT:
            raise PreflightError(f"{trial.name} cannot be run here. It said:\n{ended.said}")
        return self._study.fail(trial.number, f"exit code {ended.code}. It said:\n{ended.said}")

    def _check_any_is_good(self, table: list[TrialRecord]) -> None:
        states = {trial.state for trial in table} - {"running"}
        if states == {"failed"} and self._num_ended >= min(FIRST, self._study.total):
            last = [trial.said for trial in table if trial.said][-1]
            raise UsageError(
                f"{self._num_ended} trials were begun, and all have failed; the last with {last}"
            )
