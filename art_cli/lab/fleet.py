"""Concurrent `art run`s, each in a process of its own, here or on a cluster.

Separate processes keep runs independent, and an interrupted run can be resumed like any other.
Completed runs are not repeated. Local runs end with this process. Runs on a cluster continue, and
the same command finds them there.
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
LOOK_EVERY = 0.2  # seconds between checks of a running run
TOLD = 15  # lines of a run's output to show

T = TypeVar("T")
R = TypeVar("R")


def never(run: RunDir) -> bool:
    """Return False, so that no run is stopped early."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The outcome of a run."""

    code: int
    said: str  # the last lines of its output
    is_stopped: bool = False  # whether `watch` stopped it


class Fleet:
    """The runs of one folder, at most `jobs` at once; with several clusters, spread over them."""

    def __init__(
        self,
        project: str,
        runs_dir: Path,
        jobs: int,
        clusters: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Train on `clusters` instead of here or where the config says; `flags` are further options
        of each `art run`.
        """
        self.project, self.runs_dir, self.jobs = project, runs_dir, max(jobs, len(clusters))
        self._clusters, self._flags = clusters, flags
        self._num_on: Counter[str] = Counter()  # number of active runs by cluster
        self._going: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def folder(self) -> Path:
        """The folder of all runs."""
        return self.runs_dir / self.project

    def run_dir(self, name: str) -> RunDir:
        """Return the directory of the run of this name."""
        return RunDir(self.folder / name)

    def is_done(self, name: str) -> bool:
        """Return whether the run is complete."""
        status = self.run_dir(name).read_status()
        return status is not None and status.state == "done"

    def train(
        self, name: str, words: Sequence[str], watch: Callable[[RunDir], bool] = never
    ) -> Ended:
        """Start or resume the run and return its outcome.

        `watch` is called when metrics.jsonl has changed; if it returns True, the run saves and
        ends. Raise Interrupted if `stop` was called or someone else asked the run to end.
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
                process.stdin.close()  # closing stdin makes the guard kill what is left of the run
                process.wait()
                self._going.discard(process)
            said = _tail(printed)
        is_over = process.returncode == EXIT_INTERRUPTED or (process.returncode and self._is_over)
        if is_over and not is_stopped:
            raise Interrupted(self.interruption())
        return Ended(code=process.returncode, said=said, is_stopped=is_stopped)

    def side_by_side(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return the result of `work` for each item, with `jobs` at once.

        On Ctrl-C, or if one raises, the other runs save and end first. On a second Ctrl-C they end
        at once.
        """
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
        """Ask all active runs to save and end, and start no more."""
        with self._lock:
            self._is_over = True
            for process in tuple(self._going):  # ending processes remove themselves from the set
                process.send_signal(signal.SIGINT)

    def interruption(self) -> str:
        """Return a sentence on the state of the runs after an interruption."""
        sent = [RunDir(file.parent) for file in sorted(self.folder.glob("*/cloud.json"))]
        there = ", ".join(str(run.root) for run in sent if run.read_exit() is None)
        more = f"\nOn a cluster these go on: {there}; `art cancel` ends one" if there else ""
        return f"stopped; the same command goes on with its runs{more}"

    @contextmanager
    def _place(self, run: RunDir) -> Iterator[list[str]]:
        """Reserve a place on the run's cluster, or for a new run on the cluster with the fewest
        runs.

        Yields the option that names the cluster.
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
            except KeyboardInterrupt:  # a second Ctrl-C
                continue

    def _start(self, command: Sequence[str], printed: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_over:
                raise Interrupted(self.interruption())
            process = subprocess.Popen(
                guarded([*ART, *command]),
                stdin=subprocess.PIPE,  # the guard ends the run when this closes
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for us, who end the runs ourselves
            )
            self._going.add(process)
            return process

    def _watch(
        self, process: subprocess.Popen[bytes], run: RunDir, watch: Callable[[RunDir], bool]
    ) -> bool:
        """Wait for the run to end. Return whether `watch` stopped it."""
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
        with tempfile.TemporaryFile() as printed:  # a signal would only detach from the run
            cancel = [*ART, "cancel", str(run.root)]
            subprocess.run(cancel, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed)


def _how_to_begin(run: RunDir) -> list[str]:
    if run.cloud.exists() and run.read_exit() is None:
        return ["--attach"]  # as far as is known here, it still runs there
    return ["--resume"] if run.is_begun() else []


def _tail(printed: IO[bytes]) -> str:
    printed.seek(0)
    return "\n".join(printed.read().decode(errors="replace").splitlines()[-TOLD:])
