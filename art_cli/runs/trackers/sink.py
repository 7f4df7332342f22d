"""A tracker that shows a run elsewhere, and that the run never waits for.

    metrics.jsonl --> SinkTracker.log --> a thread: Sink.take, one row after the other --> elsewhere

What has arrived is noted in the run's directory, row by row. So a sink that is dead, hangs or
refuses costs nothing that a later step, or the run's --resume, does not send; and nothing that has
arrived is sent twice. Write a Sink for another place: build.py makes a SinkTracker of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.background import BackgroundQueue
from art_cli.runs.trackers.shorten import in_a_line
from art_cli.system.files import make_folder, to_append

PATIENCE_SECONDS = 4.0  # of the run's end, with a sink that gets nothing done
# From the first row on, until a sink is open: to import its package takes long on a busy machine.
OPENING_SECONDS = 60.0


class Sink(Protocol):
    """A place outside of the run's directory. Its methods may take their time, and may raise."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Keep a row of metrics.jsonl. When this returns, it is there for good."""
        ...

    def close(self, state: str) -> None:
        """Close. `state` is done, failed or interrupted."""
        ...


class SinkTracker:
    """Implement Tracker: hand each row to a sink. No method raises; only `finish` waits a while."""

    def __init__(
        self, name: str, run: RunDir, open_sink: Callable[[], Sink], say: Callable[[str], None]
    ) -> None:
        """`open_sink` is called in the thread: it may import what is slow, and ask a server."""
        self._name = name
        self._open_sink = open_sink
        self._say = say
        self._sink: Sink | None = None
        self._arrived = run.root / "trackers" / f"{name.lower()}.txt"
        known = self._arrived.read_text().split() if self._arrived.exists() else []
        self._known = frozenset(known)
        self._rows: deque[Mapping[str, Any]] = deque()  # that have not arrived
        self._problem = ""  # why the first of them has not
        self._began = math.inf  # when the first row came, in seconds of the monotonic clock
        self._tried = threading.Event()  # to open the sink
        self._is_told = self._is_ending = False
        self._background = BackgroundQueue(f"art-{name.lower()}")

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Have a row sent, unless an earlier session of the run has sent it."""
        if row_name(metrics) not in self._known:
            self._began = min(self._began, time.monotonic())
            self._rows.append(metrics)
            self._background.hand(self._send_next)

    def finish(self, state: str) -> None:
        """Send what is left, and wait for it as long as something arrives."""
        self._problem, self._is_ending = "", True
        for _ in range(len(self._rows)):  # what failed before is tried once more
            self._background.hand(self._send_next)
        self._background.hand(lambda: self._close(state))
        if self._rows:
            self._tried.wait(max(0.0, self._began + OPENING_SECONDS - time.monotonic()))
        in_time = self._background.catches_up(PATIENCE_SECONDS)
        if self._rows or self._problem:
            why = self._problem if in_time or self._problem else "it takes too long"
            num = len(self._rows)
            lacking = f"lacks {num} row{'s' * (num != 1)} of the run" if num else "was not closed"
            self._say(f"{self._name} {lacking}: {why}. --resume sends what is missing")
        elif not in_time:
            self._say(f"{self._name} was not closed: it takes too long")

    # -- in the background thread -----------------------------------------------------------

    def _send_next(self) -> None:
        if not self._rows or (self._is_ending and self._problem):
            return
        row = self._rows[0]
        try:
            try:
                self._sink = self._sink or self._open_sink()
            finally:
                self._tried.set()
            self._sink.take(row)
            make_folder(self._arrived.parent)
            with open(self._arrived, "a", opener=to_append) as file:
                file.write(f"{row_name(row)}\n")
        except (Exception, SystemExit) as error:  # of many kinds: the network's, a library's
            self._problem = in_a_line(error)
            if not (self._is_told or self._is_ending):
                self._is_told = True
                self._say(f"{self._name}: {self._problem}. The run goes on, and tries again later")
            return
        self._problem = ""
        self._rows.popleft()

    def _close(self, state: str) -> None:
        try:
            if self._sink:
                self._sink.close(state)
        except (Exception, SystemExit) as error:
            self._problem = self._problem or in_a_line(error)


class SinkTrackers:
    """Implement Tracker: several mirrors, whose ends are waited for at the same time."""

    def __init__(self, mirrors: list[SinkTracker]) -> None:
        self._mirrors = mirrors

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Hand a row to each."""
        for mirror in self._mirrors:
            mirror.log(metrics)

    def finish(self, state: str) -> None:
        """Close all: several that hang cost what one does."""
        ends = [threading.Thread(target=mirror.finish, args=(state,)) for mirror in self._mirrors]
        for end in ends:
            end.start()
        for end in ends:
            end.join()


def split_of(row: Mapping[str, Any], held_out: str) -> str:
    """Return whose trajectories go with a row of metrics: `train`, or the split of evaluations."""
    return held_out if "val/reward" in row else "train"


def row_name(row: Mapping[str, Any]) -> str:
    """Return what tells a row of metrics.jsonl from the others: `train-4`."""
    return f"{split_of(row, 'val')}-{row['training_step']}"


def finite(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of a row that are numbers: null stands for those that were not finite."""
    numbers = {k: v for k, v in row.items() if k != "training_step" and v is not None}
    return {k: v for k, v in numbers.items() if math.isfinite(v)}
