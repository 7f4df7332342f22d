"""`art run`s that go on side by side, each a process of its own, here or on a cluster.

A process a run: nothing of one can leak into the next, and what is interrupted goes on like any
other run. Runs that are done are not run again. Here none outlives this process; on a cluster they
do, and the same command finds them there.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from art_cli.backends.cloud.run import read_sent
from art_cli.errors import EXIT_INTERRUPTED, Interrupted
from art_cli.runs.directory import RunDir
from art_cli.system.guard import guarded
from art_cli.system.progress import tell

ART = [sys.executable, "-m", "art_cli"]
LOOK_EVERY = 0.2  # seconds between two looks at a run that goes on
TOLD = 15  # lines of what a run has said

T = TypeVar("T")
R = TypeVar("R")


def never(run: RunDir) -> bool:
    """Stop no run."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a run."""

    code: int
    said: str  # its last lines
    is_stopped: bool = False  # by whoever watched it


class Fleet:
    """The runs of one folder, `jobs` of them at once; on several clusters, one or more on each."""

    def __init__(
        self,
        project: str,
        runs_dir: Path,
        jobs: int,
        clusters: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Take the clusters to train on, if it is not here or where the config says, and further
        options of each `art run`."""
        self.project, self.runs_dir, self.jobs = project, runs_dir, max(jobs, len(clusters))
        self._clusters, self._flags = clusters, flags
        self._num_on: Counter[str] = Counter()  # runs that go on there, by cluster
        self._going: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def folder(self) -> Path:
        """The folder of all of them."""
        return self.runs_dir / self.project

    def run_dir(self, name: str) -> RunDir:
        """Return the directory of the run of this name."""
        return RunDir(self.folder / name)

    def is_done(self, name: str) -> bool:
        """Return whether nothing is left to do for the run."""
        status = self.run_dir(name).read_status()
        return status is not None and status.state == "done"

    def train(
        self, name: str, words: Sequence[str], watch: Callable[[RunDir], bool] = never
    ) -> Ended:
        """Begin the run, or go on with it, and return how it ended.

        `watch` looks at it when metrics.jsonl has changed; where it returns True the run saves and
        ends. Raises Interrupted where `stop` was called, or someone else asked the run to end.
        """
        run = self.run_dir(name)
        if self.is_done(name):
            return Ended(code=0, said="")
        own = [f"project={self.project}", f"name={name}", "--runs-dir", str(self.runs_dir)]
        with self._place(run) as place, tempfile.TemporaryFile() as printed:
            command = ["run", *words, *own, *place, *self._flags, *_how_to_begin(run)]
            process = self._start(command, printed)
            try:
                is_stopped = self._watch(process, run, watch)
            finally:
                assert process.stdin
                process.stdin.close()  # the guard kills what is left
                process.wait()
                self._going.discard(process)
            said = _tail(printed)
        is_over = process.returncode == EXIT_INTERRUPTED or (process.returncode and self._is_over)
        if is_over and not is_stopped:
            raise Interrupted(self.interruption())
        return Ended(code=process.returncode, said=said, is_stopped=is_stopped)

    def side_by_side(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return what `work` makes of each item, `jobs` at once. With Ctrl-C, or where one raises,
        the runs of the others save and end first; with Ctrl-C again they end at once."""
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(work, item) for item in items]
            try:
                for ended in as_completed(futures):
                    ended.result()
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end(futures)
                raise

    def stop(self) -> None:
        """Ask all that goes on to save and end, and begin nothing more."""
        with self._lock:
            self._is_over = True
            for process in tuple(self._going):  # those that end take themselves out of it
                process.send_signal(signal.SIGINT)

    def interruption(self) -> str:
        """Say what becomes of the runs, now that the user has stopped this."""
        sent = [RunDir(file.parent) for file in sorted(self.folder.glob("*/cloud.json"))]
        there = ", ".join(str(run.root) for run in sent if run.read_exit() is None)
        more = f"\nOn a cluster these go on: {there}; `art cancel` ends one" if there else ""
        return f"stopped; the same command goes on with its runs{more}"

    @contextmanager
    def _place(self, run: RunDir) -> Iterator[list[str]]:
        """Hold a place on the cluster that a run was sent to, or else on the one with the fewest.

        Yields the option that names it.
        """
        with self._lock:
            name = read_sent(run).cluster if run.cloud.exists() else None
            name = name or min(self._clusters, key=self._num_on.__getitem__, default="")
            self._num_on[name] += 1
        try:
            yield ["--on", name] if name else []
        finally:
            with self._lock:
                self._num_on[name] -= 1

    def _end(self, futures: Sequence[Future[Any]]) -> None:
        while True:
            try:
                self.stop()
                tell("the runs that go on save and end (Ctrl-C again: they end at once)")
                wait([f for f in futures if not f.cancelled()])  # of those it would wait for ever
                return
            except KeyboardInterrupt:  # once more
                continue

    def _start(self, command: Sequence[str], printed: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_over:
                raise Interrupted(self.interruption())
            process = subprocess.Popen(
                guarded([*ART, *command]),
                stdin=subprocess.PIPE,  # the guard ends the run when it closes
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, who end the runs ourselves
            )
            self._going.add(process)
            return process

    def _watch(
        self, process: subprocess.Popen[bytes], run: RunDir, watch: Callable[[RunDir], bool]
    ) -> bool:
        """Return whether the run was stopped, once it has ended."""
        is_stopped, seen = False, 0
        while True:
            try:
                process.wait(LOOK_EVERY)
                return is_stopped
            except subprocess.TimeoutExpired:
                size = run.metrics.stat().st_size if run.metrics.exists() else 0
                if size != seen and not is_stopped and watch(run):
                    is_stopped = True
                    self._stop_one(process, run)
                seen = size

    def _stop_one(self, process: subprocess.Popen[bytes], run: RunDir) -> None:
        if not run.cloud.exists():
            process.send_signal(signal.SIGINT)
            return
        with tempfile.TemporaryFile() as printed:  # a signal would only let go of it
            cancel = [*ART, "cancel", str(run.root)]
            subprocess.run(cancel, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)


def _how_to_begin(run: RunDir) -> list[str]:
    if run.cloud.exists() and run.read_exit() is None:
        return ["--attach"]  # it goes on there, as far as is known here
    return ["--resume"] if run.is_begun() else []


def _tail(printed: IO[bytes]) -> str:
    printed.seek(0)
    return "\n".join(printed.read().decode(errors="replace").splitlines()[-TOLD:])
