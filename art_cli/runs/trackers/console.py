"""The console of a run: a live panel on a terminal, plain lines elsewhere.

During every wait, a line says what the run is waiting for. The panel shows the numbers of
metrics.jsonl.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from art_cli.runs.trackers.run_numbers import RunNumbers, clock_text
from art_cli.system.progress import Pulse
from art_cli.terminal.screen import Screen
from art_cli.terminal.text import say, visible

PLAIN_STEP_SECONDS = 2.0  # minimum time between step lines
PLAIN_PHASE_SECONDS = 10.0  # without output before the current phase is printed again
STANDSTILL_STEPS = 10  # consecutive steps without a signal in any group before a warning
LABEL = 6  # columns of the panel's longest label
BAR = 20  # columns of a phase's progress bar


class Console:
    """A tracker that draws. Use it as a context manager, which restores the terminal on errors.

    With `plain=None`, it prints lines instead of a panel if stdout is not a terminal, TERM is dumb
    or CI is set. `history` has the rows of metrics.jsonl of a resumed run.
    """

    def __init__(
        self,
        total_steps: int,
        header: str,
        plain: bool | None = None,
        *,
        history: Iterable[Mapping[str, Any]] = (),
        console: Screen | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Screen()
        self._plain = _must_be_plain(self._console) if plain is None else plain
        self._header = visible(header, lines=False)
        self._clock = clock
        self._progress = RunNumbers(total_steps, clock)
        for metrics in history:
            self._progress.add(metrics, timed=False)
        self._phase = Phase("starting", None, None, clock())
        self._lock = threading.RLock()  # rich draws in its own thread; signals come any time
        self._spinner = Spinner("dots", style="cyan")
        self._ended: str | None = None
        self._silent = False  # the reader of our output is gone
        self._said = self._said_step = -math.inf  # time of the last line
        self._pulse = Pulse(self._tell_silence)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=6,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Console:
        if self._plain:
            self.say(self._header)
            self._pulse.start()
        else:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop("failed" if kind else "stopped")

    def say(self, line: str) -> None:
        """Print a line, above the panel if there is one. Never raises."""
        if self._silent:
            return
        self._said = self._clock()
        try:
            if self._plain:
                say(line, file=self._console.file)
            else:
                self._console.print(line, soft_wrap=True)
        except BrokenPipeError:  # `art run | head`: go on; Python's own flush at exit must not fail
            self._silent = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._console.file.fileno())
        except OSError:  # the terminal is gone
            self._silent = True

    def phase(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show the current activity until the next phase or metrics. Digits in it may change."""
        with self._lock:
            is_new = not self._phase.is_same(text)
            began = self._clock() if is_new else self._phase.began
            self._phase = Phase(text, done, total, began)
        if not self._plain:
            return
        is_due = self._clock() - self._said >= PLAIN_PHASE_SECONDS
        if is_due or (is_new and self._progress.step == 0):
            self.say(self._phase.line())

    def log(self, metrics: Mapping[str, Any]) -> None:
        """Record the metrics of a step, or of an evaluation (val/* only)."""
        with self._lock:
            self._progress.add(metrics)
            step = self._progress.step
            text = f"step {step + 1}" if step < self._progress.total else "finishing"
            self._phase = Phase(text, None, None, self._clock())
        if "train/reward" in metrics and self._progress.steps_without_signal == STANDSTILL_STEPS:
            self.say(
                f"warning: no signal in any group for {STANDSTILL_STEPS} steps: all rewards in it "
                "were equal. The task is solved or too hard, turns are cut off (see truncated), or "
                "the policy has collapsed (val has fallen: lower train.learning_rate). Ctrl-C "
                "saves and stops"
            )
        if not self._plain:
            return
        if "val/reward" in metrics:
            self.say(f"step {metrics.get('training_step', 0)}  val {self._progress.val_text()}")
        is_last = self._progress.step >= self._progress.total
        is_due = is_last or self._clock() - self._said_step >= PLAIN_STEP_SECONDS
        if "train/reward" in metrics and is_due:
            self._said_step = self._clock()
            self.say(self._progress.step_line())

    def finish(self, state: str) -> None:
        """Stop the panel, leaving its last state visible, and print how the run ended."""
        if self._ended is None:
            self._stop(state)
            self.say(self._progress.last_line(state))

    def _stop(self, state: str) -> None:
        if self._ended is None:
            self._ended = state
            self._pulse.stop()
            with suppress(OSError):  # the terminal is gone
                self._live.stop()

    def _tell_silence(self) -> None:
        """Print the phase again if nothing was printed for a while."""
        now = self._clock()
        if self._ended is None and now - self._said >= PLAIN_PHASE_SECONDS:
            with self._lock:
                phase = self._phase
            self.say(f"{phase.line()}  {clock_text(now - phase.began)}")

    def _draw(self) -> RenderableType:
        with self._lock:
            width = self._console.width
            rows = self._progress.rows(width - LABEL - 3)
            table = Table.grid(padding=(0, 2))
            table.add_column(style="dim", min_width=LABEL)  # wide content wraps beside it
            table.add_column()
            for label, row in rows:
                table.add_row(label, row)
            header = Text(self._header, style="bold", no_wrap=True, overflow="ellipsis")
            now = [] if self._ended else [self._phase.row(self._spinner, self._clock(), width)]
            return Group(header, table, *now)


class Phase:
    """The current activity. `began` is in seconds of the console's clock."""

    def __init__(self, text: str, done: int | None, total: int | None, began: float) -> None:
        self.text = visible(text, lines=False)
        self.done, self.total, self.began = done, total, began

    def is_same(self, text: str) -> bool:
        """Return whether `text` is the same phase, that is, differs only in digits."""
        return re.sub(r"[\d.]+", "#", text) == re.sub(r"[\d.]+", "#", self.text)

    def line(self) -> str:
        """Return the phase as a line for plain mode."""
        count = f" {self.done or 0}/{self.total}" if self.total else ""
        return f"{self.text}{count}"

    def row(self, spinner: Spinner, now: float, width: int) -> RenderableType:
        """Return the panel's row: spinner, text, and a bar if the total is known and it fits."""
        elapsed = now - self.began
        grid = Table.grid(padding=(0, 1))
        grid.add_column()
        grid.add_column(no_wrap=True, overflow="ellipsis")
        if not self.total:
            grid.add_row(spinner, Text.assemble(self.text, ("  " + clock_text(elapsed), "dim")))
            return grid
        done = self.done or 0
        left = clock_text(elapsed)
        if 0 < done < self.total:
            left = f"{clock_text(elapsed / done * (self.total - done))} left"
        bar = ProgressBar(total=self.total, completed=done, width=BAR)
        count = Text(f"{done}/{self.total}  {left}", style="dim", no_wrap=True)
        has_room = width >= len(self.text) + BAR + len(count) + 5
        grid.add_row(spinner, self.text, *([bar] if has_room else []), count)
        return grid


def _must_be_plain(console: Screen) -> bool:
    is_narrow = console.encoding.replace("-", "") != "utf8"  # cannot draw bars
    is_dumb = console.is_dumb_terminal or bool(os.environ.get("CI"))
    return not console.file.isatty() or is_dumb or is_narrow
