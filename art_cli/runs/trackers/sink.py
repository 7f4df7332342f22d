"""A tracker that mirrors a run to another place without ever blocking the run.

    metrics.jsonl --> SinkTracker.log --> a thread: Sink.take, one row after the other --> elsewhere

Each row that has arrived is recorded in the run's directory. If a sink is dead, hangs or refuses,
a later step or the run's --resume sends the missing rows. No row is sent twice. To support another
place, write a Sink; build.py wraps it in a SinkTracker.
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

PATIENCE_SECONDS = 4.0  # at the run's end, for a sink that makes no progress
# From the first row until the sink is open: importing its package is slow on a busy machine.
OPENING_SECONDS = 60.0


class Sink(Protocol):
    """A place outside the run's directory. Its methods may be slow, and may raise."""

    def take(self, row: Mapping[str, Any]) -> None:
        """Store a row of metrics.jsonl permanently before returning."""
        ...

    def close(self, state: str) -> None:
        """Close. `state` is done, failed or interrupted."""
        ...


class SinkTracker:
    """Implements Tracker: passes rows to a sink. No method raises; only `finish` waits."""

    def __init__(
        self, name: str, run: RunDir, open_sink: Callable[[], Sink], say: Callable[[str], None]
    ) -> None:
        """`open_sink` is called in the thread: it may import slow packages and contact a server."""
        self._name = name
        self._open_sink = open_sink
        self._say = say
        self._sink: Sink | None = None
        self._arrived = run.root / "trackers" / f"{name.lower()}.txt"
        known = self._arrived.read_text().split() if self._arrived.exists() else []
        self._known = frozenset(known)
        self._rows: deque[Mapping[str, Any]] = deque()  # rows that have not arrived
        self._problem = ""  # why the first of them has not arrived
        self._began = math.inf  # time of the first row, in seconds of the monotonic clock
        self._tried = threading.Event()  # set after the first attempt to open the sink
        self._is_told = self._is_ending = False
        self._background = BackgroundQueue(f"art-{name.lower()}")

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Queue a row, unless an earlier session of the run has sent it."""
        if row_name(metrics) not in self._known:
            self._began = min(self._began, time.monotonic())
            self._rows.append(metrics)
            self._background.hand(self._send_next)

    def finish(self, state: str) -> None:
        """Send the remaining rows. Wait as long as rows arrive."""
        self._problem, self._is_ending = "", True
        for _ in range(len(self._rows)):  # retry the rows that failed
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
        except (Exception, SystemExit) as error:  # many types: of the network, of libraries
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
    """Implements Tracker: several mirrors that are closed concurrently."""

    def __init__(self, mirrors: list[SinkTracker]) -> None:
        self._mirrors = mirrors

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Queue a row for each mirror."""
        for mirror in self._mirrors:
            mirror.log(metrics)

    def finish(self, state: str) -> None:
        """Close all mirrors concurrently, so that hanging ones delay the end only once."""
        ends = [threading.Thread(target=mirror.finish, args=(state,)) for mirror in self._mirrors]
        for end in ends:
            end.start()
        for end in ends:
            end.join()


def split_of(row: Mapping[str, Any], held_out: str) -> str:
    """Return the split of a metrics row's trajectories: `train`, or that of evaluations."""
    return held_out if "val/reward" in row else "train"


def row_name(row: Mapping[str, Any]) -> str:
    """Return a unique name of a row of metrics.jsonl: `train-4`."""
    return f"{split_of(row, 'val')}-{row['training_step']}"


def finite(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite metrics of a row. Null stands for values that were not finite."""
    numbers = {k: v for k, v in row.items() if k != "training_step" and v is not None}
    return {k: v for k, v in numbers.items() if math.isfinite(v)}
