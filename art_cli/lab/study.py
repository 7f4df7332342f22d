"""Optuna under a sweep: which point is tried next, and which trial is not worth going on with.

Points come from its TPE sampler. Asynchronous successive halving (ASHA, 1810.05934) ends trials:
after so many steps, and 3, 9, ... times as many, a trial goes on only where it is among the best
third of those that got there. All is in one SQLite file, so that a sweep goes on after a kill.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.trial import FrozenTrial, TrialState

from art_cli.errors import ArtError, PreflightError, UsageError
from art_cli.lab.space import Axis, Choices, Point, Space
from art_cli.system.files import make_folder, open_file
from art_cli.system.lock import hold
from art_cli.system.untrusted import is_number

REDUCTION = 3  # one of this number of trials continues
FILE, LOCK = "sweep.db", "sweep.lock"
PATIENCE = 0.5  # seconds

RecordState = Literal["done", "stopped", "failed", "running"]
STATES: dict[TrialState, RecordState] = {
    TrialState.COMPLETE: "done",
    TrialState.PRUNED: "stopped",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """A trial as stored in the study."""

    number: int
    point: Point
    state: RecordState
    value: float | None = None  # of the metric: at the end, the mean over seeds; else the last
    step: int | None = None  # step of the last reported value
    values: tuple[float, ...] = ()  # at the end, by seed
    said: str = ""  # the reason for a failure
    same_as: int | None = None  # an earlier trial with the same point, which was not run again

    @property
    def name(self) -> str:
        """The name of the trial and of its runs."""
        return f"t{self.number}"


@contextmanager
def opened(
    folder: Path, space: Space, identity: str, first_rung: int, num_trials: int
) -> Iterator[Study]:
    """Open the study of a folder, and create it if there is none.

    `first_rung` is the step at which trials are first compared. Raise UsageError if the folder
    contains another sweep or something else, PreflightError if another process uses the study.
    """
    make_folder(folder)
    busy = PreflightError(f"{folder} is in use by another `art sweep`; wait for it, or stop it")
    with hold(folder / LOCK, PATIENCE, lambda: busy):
        # Runs of another study would be mistaken for this one's.
        if not (folder / FILE).exists() and any(folder.glob("t*/config.yaml")):
            raise UsageError(
                f"{folder} has runs and no {FILE} that knows them; move them, or give the sweep "
                "another --name"
            )
        try:
            _check_plain(folder / FILE)
            study = Study(folder, space, identity, first_rung, num_trials)
        except ArtError:
            raise
        except Exception as e:  # a malformed cell makes Optuna raise arbitrary errors
            raise UsageError(
                f"{folder / FILE} cannot be read: {type(e).__name__}: {e}\n"
                "Give the sweep another --name"
            ) from None
        try:
            yield study
        finally:
            study.close()


def _check_plain(file: Path) -> None:
    """Raise OSError if it is not a file, ValueError if reading its tables would execute SQL."""
    try:
        open_file(file).close()
    except FileNotFoundError:
        return
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')")
        if name := found.fetchone():
            raise ValueError(f"it holds a view or a trigger: {name[0]!r:.100}")


class Study:
    """The trials of a sweep, stored in its folder. Threads may share it."""

    def __init__(
        self, folder: Path, space: Space, identity: str, first_rung: int, num_trials: int
    ) -> None:
        """Open or create the study; see `opened`."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._lock = threading.RLock()
        self._storage = optuna.storages.RDBStorage(f"sqlite:///{(folder / FILE).absolute()}")
        self._study = optuna.create_study(
            storage=self._storage,
            study_name="sweep",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.SuccessiveHalvingPruner(first_rung, REDUCTION),
        )
        if self._study.user_attrs.get("identity", identity) != identity:
            raise UsageError(
                f"{folder} has a sweep of another config, other ranges, another metric or other "
                "seeds; give this one another --name"
            )
        self._study.set_user_attr("identity", identity)
        begun = self._trials(*STATES)
        # With its original seed, the sampler would repeat its draws.
        self._study.sampler = optuna.samplers.TPESampler(seed=len(begun))
        self._left = [t._trial_id for t in begun if t.state == TrialState.RUNNING]
        self._going: dict[int, optuna.Trial] = {}
        self.table()  # report a malformed cell now, before anything is added
        self.total = self._plan(num_trials)

    def next(self) -> TrialRecord | None:
        """Start a trial or resume an interrupted one. Return None when all have been tried.

        A trial whose point was tried before ends at once with the same result.
        """
        with self._lock:
            if self._left:
                trial = optuna.Trial(self._study, self._left.pop(0))
            elif len(self._trials(*STATES)) < self.total:
                trial = self._study.ask()
            else:
                return None
            for axis in self._space.axes:
                _suggest(trial, axis)
            self._going[trial.number] = trial
            now = self.record(trial.number)
            ended = [t for t in self.table() if t.state in ("done", "stopped")]
            if same := next((t for t in ended if t.point == now.point), None):
                trial.set_user_attr("same_as", same.number)
                if same.state == "done":
                    self.end(now.number, same.values)
                else:
                    self.stop(now.number)
                return self.record(now.number)
            return now

    def report(self, number: int, step: int, value: float) -> bool:
        """Report a running trial's value at a step. Return whether to stop the trial."""
        with self._lock:
            trial = self._going[number]
            if step in self._study.trials[number].intermediate_values:
                return False  # reported before an interruption
            trial.report(value, step)
            return trial.should_prune()

    def end(self, number: int, values: tuple[float, ...]) -> None:
        """Record that a trial has ended, with one value per seed."""
        with self._lock:
            trial = self._going.pop(number)
            trial.set_user_attr("values", values)
            self._study.tell(trial, sum(values) / len(values))

    def stop(self, number: int) -> None:
        """Record that a trial was stopped early."""
        with self._lock:
            self._study.tell(self._going.pop(number), state=TrialState.PRUNED)

    def fail(self, number: int, said: str) -> None:
        """Record that a trial has failed, and why."""
        with self._lock:
            trial = self._going.pop(number)
            trial.set_user_attr("said", said)
            self._study.tell(trial, state=TrialState.FAIL)

    def record(self, number: int) -> TrialRecord:
        """Return the record of a trial."""
        with self._lock:
            return self._tried(self._study.trials[number])

    def table(self) -> list[TrialRecord]:
        """Return all trials that have started, in order."""
        return [self._tried(each) for each in self._trials(*STATES)]

    def close(self) -> None:
        """Close the file."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        with self._lock:
            return self._study.get_trials(deepcopy=False, states=states)

    def _plan(self, num_trials: int) -> int:
        """Enqueue the points that are known in advance, and return the number of trials."""
        size, own = self._space.size, self._space.own
        points = self._space.grid() if size and size <= num_trials else [own] if own else []
        for point in points:
            values = {axis.key: _value(axis, point[axis.key]) for axis in self._space.axes}
            self._study.enqueue_trial(values, skip_if_exists=True)
        num_begun, num_waiting = len(self._trials(*STATES)), len(self._trials(TrialState.WAITING))
        is_grid = len(points) == size
        return num_begun + num_waiting if is_grid else num_trials

    def _tried(self, trial: FrozenTrial) -> TrialRecord:
        noted = trial.user_attrs
        values = trial.intermediate_values
        axes = (axis for axis in self._space.axes if axis.key in trial.params)
        step = max(values, default=None)
        numbers = [trial.value, *values.values(), *noted.get("values", ()), noted.get("same_as")]
        if not all(number is None or is_number(number) for number in numbers):
            raise UsageError(f"{FILE}: a value of trial {trial.number} is no number")
        return TrialRecord(
            number=trial.number,
            point={axis.key: axis.text_of(trial.params[axis.key]) for axis in axes},
            state=STATES[trial.state],
            value=trial.value if trial.value is not None or step is None else values[step],
            step=step,
            values=tuple(noted.get("values", ())),
            said=str(noted.get("said", "")),
            same_as=noted.get("same_as"),
        )


def _suggest(trial: optuna.Trial, axis: Axis) -> None:
    if isinstance(axis, Choices):
        trial.suggest_categorical(axis.key, axis.values)
    elif axis.is_whole:
        low, high, step = int(axis.low), int(axis.last), int(axis.step or 1)
        trial.suggest_int(axis.key, low, high, step=step, log=axis.is_log)
    else:
        trial.suggest_float(axis.key, axis.low, axis.last, step=axis.step, log=axis.is_log)


def _value(axis: Axis, text: str) -> Any:
    """Return Optuna's value for the text of an override."""
    if isinstance(axis, Choices):
        return text
    return int(text) if axis.is_whole else float(text)
