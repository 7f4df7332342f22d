"""What a person sees while a run goes on: a live panel on a terminal, plain lines elsewhere.

Every wait has a line that says what is waited for. The panel's numbers are those of metrics.jsonl.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from art_cli.printed import say, visible
from art_cli.system.screen import Screen

BARS = "▁▂▃▄▅▆▇█"
SPARK_STEPS = 40
WINDOW = 20  # steps that the time split and the time left are taken from
PLAIN_STEP_SECONDS = 2.0  # at most one step line in this time
PLAIN_PHASE_SECONDS = 10.0  # of silence, before a phase that goes on is told again
STANDSTILL_STEPS = 10  # in a row without a signal in any group, before that is told
LABEL = 6  # columns of the panel's longest label
SHORTEST_BAR = 8
BAR = 20  # columns of the bar of a phase
TIMES = ("rollout", "score", "train", "sync", "eval")


class Console:
    """A tracker that draws. Use it as a context manager: it gives the terminal back on any error.

    `plain=None` decides by stdout: lines instead of a panel where it is no terminal, TERM is dumb
    or CI is set. `history` is metrics.jsonl of a run that is resumed.
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
        self._progress = Progress(total_steps, clock)
        for metrics in history:
            self._progress.add(metrics, timed=False)
        self._phase = Phase("starting", None, None, clock())
        self._lock = threading.RLock()  # rich's own thread draws; a signal may come anywhere
        self._spinner = Spinner("dots", style="cyan")
        self._ended: str | None = None
        self._silent = False  # whoever read our output has gone
        self._said = self._said_step = -math.inf  # when the last line was printed
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=6,
            vertical_overflow="crop",
        )

    def __enter__(self) -> Console:
        if self._plain:
            self.say(self._header)
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
        """Print a line; it stays above the panel. Never raises."""
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
        """Say what is going on now, until the next phase or metrics. Digits in it may change."""
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
        """Take the metrics of a step, or of an evaluation (val/* only)."""
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
        """Take the panel down, its last picture stays, and say how the run ended."""
        if self._ended is None:
            self._stop(state)
            self.say(self._progress.last_line(state))

    def _stop(self, state: str) -> None:
        if self._ended is None:
            self._ended = state
            with suppress(OSError):  # the terminal is gone
                self._live.stop()

    def _draw(self) -> RenderableType:
        with self._lock:
            width = self._console.width
            rows = self._progress.rows(width - LABEL - 3)
            table = Table.grid(padding=(0, 2))
            table.add_column(style="dim", min_width=LABEL)  # what is wide wraps beside it
            table.add_column()
            for label, row in rows:
                table.add_row(label, row)
            header = Text(self._header, style="bold", no_wrap=True, overflow="ellipsis")
            now = [] if self._ended else [self._phase.row(self._spinner, self._clock(), width)]
            return Group(header, table, *now)


class Phase:
    """What is going on now. `began` is in seconds of the console's clock."""

    def __init__(self, text: str, done: int | None, total: int | None, began: float) -> None:
        self.text = visible(text, lines=False)
        self.done, self.total, self.began = done, total, began

    def is_same(self, text: str) -> bool:
        """Whether `text` is this phase, further on: it differs in digits only."""
        return re.sub(r"[\d.]+", "#", text) == re.sub(r"[\d.]+", "#", self.text)

    def line(self) -> str:
        """For plain mode."""
        count = f" {self.done or 0}/{self.total}" if self.total else ""
        return f"{self.text}{count}"

    def row(self, spinner: Spinner, now: float, width: int) -> RenderableType:
        """For the panel: spinner, text, and a bar where the end is known and there is room."""
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


class Progress:
    """The numbers of a run so far, and how they are said. No terminal in here."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self.total = total
        self.step = 0
        self.steps_without_signal = 0  # the last ones in a row
        self._clock = clock
        self._began = clock()
        self._marks: list[tuple[float, int]] = []  # when each step of this session ended
        self._rewards: list[float | None] = []
        self._vals: dict[int, tuple[float, float | None]] = {}  # step -> reward, half-width of CI
        self._rows: list[dict[str, Any]] = []  # the last WINDOW, evaluations included
        self._latest: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any], *, timed: bool = True) -> None:
        """Take one set of metrics; any may be missing, None or not finite."""
        numbers = {k: v for k, v in metrics.items() if _is_number(v)}
        step = int(numbers.get("training_step", self.step))
        self._latest.update(numbers)
        self._rows = [*self._rows[-WINDOW + 1 :], numbers]
        if "val/reward" in numbers:
            self._vals[step] = (numbers["val/reward"], numbers.get("val/reward_ci"))
        if "train/reward" in metrics:
            self.step = max(self.step, step)
            self._rewards.append(numbers.get("train/reward"))
            groups = numbers.get("data/groups")
            is_flat = groups and groups == numbers.get("data/groups_zero_variance")
            self.steps_without_signal = self.steps_without_signal + 1 if is_flat else 0
            if timed:
                self._marks = [*self._marks[-WINDOW:], (self._clock(), step)]

    def rows(self, width: int) -> list[tuple[str, RenderableType]]:
        """Label and content of each line of the panel that has something to say."""
        spark = min(SPARK_STEPS, max(8, width - 24))
        rows: list[tuple[str, RenderableType]] = [("step", self._step_row(width))]
        if self._rewards:
            head = _plus_minus(self._rewards[-1], self._latest.get("train/reward_std"), "±")
            bars = sparkline(self._rewards[-spark:])
            rows.append(("reward", Text.assemble((f"{head:<14}", "bold"), (bars, "cyan"))))
        if self._vals:
            text = self.val_text("→", "±")
            bars = sparkline([reward for reward, _ in self._vals.values()][-12:])
            show = bars if len(self._vals) > 1 and len(text) + len(bars) + 2 <= width else ""
            rows.append(("val", Text.assemble((text, "bold"), "  ", (show, "green"))))
        texts = {
            "data": self._data_text(),
            "judge": self._judge_text(),
            "policy": self._policy_text(),
            "time": self._time_text(),
            "speed": self._speed_text(),
        }
        return rows + [(label, Text(text)) for label, text in texts.items() if text]

    def step_line(self) -> str:
        """The plain line of a step."""
        std = self._latest.get("train/reward_std")
        parts = [
            f"step {self.step}/{self.total}",
            f"reward {_plus_minus(self._rewards[-1] if self._rewards else None, std)}",
            self._data_text(", "),
            self._judge_text(", "),
            self._time_text(", "),
            self._speed_text(", "),
            self._left_text(),
        ]
        return "  ".join(part for part in parts if part)

    def last_line(self, state: str) -> str:
        """How it ended, for both modes."""
        val = f"; val {self.val_text()}" if self._vals else ""
        took = clock_text(self._clock() - self._began)
        return f"{state} at step {self.step}/{self.total} after {took}{val}"

    def val_text(self, arrow: str = "->", plus_minus: str = "+/-") -> str:
        """First and last validation reward, and the best where that is another."""
        vals = list(self._vals.values())
        success = self._latest.get("val/success")
        tail = f"  success {success:.0%}" if success is not None else ""
        (first, first_ci), (last, last_ci) = vals[0], vals[-1]
        if len(self._vals) == 1:
            note = "  (untrained)" if 0 in self._vals else ""
            return _plus_minus(first, first_ci, plus_minus) + note + tail
        best_step = max(self._vals, key=lambda step: self._vals[step][0])
        best = f"  (best {self._vals[best_step][0]:.2f} at step {best_step})"
        is_last = best_step == max(self._vals)
        ends = f"{first:.2f} {arrow} {_plus_minus(last, last_ci, plus_minus)}"
        return ends + ("  (best so far)" if is_last else best) + tail

    def _step_row(self, width: int) -> RenderableType:
        done, left = f"{self.step}/{self.total}", self._left_text()
        words = Text.assemble((done, "bold"), "  ", (left, "dim"))
        room = min(40, width - len(words) - 2)
        if room < SHORTEST_BAR:
            return words
        bar = ProgressBar(total=max(self.total, 1), completed=self.step, width=room)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(bar, words)
        return grid

    def _left_text(self) -> str:
        seconds = self._latest.get("time/step_s")
        if len(self._marks) > 1:
            (t0, step0), (t1, step1) = self._marks[0], self._marks[-1]
            seconds = (t1 - t0) / max(step1 - step0, 1)
        if seconds is None:
            return ""
        since = self._clock() - self._marks[-1][0] if self._marks else 0.0
        left = max(seconds * (self.total - self.step) - since, 0.0)
        rate = f"{seconds:.1f} s/step" if seconds < 100 else f"{clock_text(seconds)}/step"
        return f"{rate}, {clock_text(left)} left" if self.step < self.total else rate

    def _data_text(self, glue: str = " · ") -> str:
        get = self._latest.get
        parts = []
        groups, flat = get("data/groups"), get("data/groups_zero_variance")
        if groups and flat is not None:
            parts.append(f"no signal in {flat / groups:.0%} of groups")
        number, truncated = get("data/trajectories"), get("data/truncated")
        if number and truncated is not None:
            parts.append(f"{truncated / number:.0%} truncated")
        failed = get("data/trajectories_failed")
        if failed is not None:
            parts.append(f"{failed:.0f} failed")
        return glue.join(parts)

    def _judge_text(self, glue: str = " · ") -> str:
        get = self._latest.get
        calls, failures, usd = get("judge/calls"), get("judge/failures"), get("costs/judge_usd")
        if calls is None or failures is None:
            return ""
        parts = [f"{calls:.0f} calls", f"{failures:.0f} groups failed"]
        ties = get("judge/tie_rate")
        if ties is not None:
            parts.append(f"{ties:.0%} ties")
        if usd:
            parts.append(f"${usd:.2f} spent")
        return glue.join(parts)

    def _policy_text(self) -> str:
        names = {"entropy": ".3f", "kl": ".2g", "grad_norm": ".3f", "clip_fraction": ".1%"}
        names |= {"ratio_max": ".2f"}
        found = [(n, f, self._latest.get(f"loss/{n}")) for n, f in names.items()]
        short = {"grad_norm": "grad", "clip_fraction": "clipped", "ratio_max": "ratio max"}
        return " · ".join(f"{short.get(n, n)} {v:{f}}" for n, f, v in found if v is not None)

    def _time_text(self, glue: str = " · ") -> str:
        spent = {n: sum(row.get(f"time/{n}_s", 0.0) for row in self._rows) for n in TIMES}
        whole = sum(spent.values())
        return glue.join(f"{n} {s / whole:.0%}" for n, s in spent.items() if s > 0)

    def _speed_text(self, glue: str = " · ") -> str:
        found = [(n, self._latest.get(f"throughput/{n}_tok_s")) for n in ("rollout", "train")]
        return glue.join(f"{n} {v:,.0f} tok/s" for n, v in found if v is not None)


def sparkline(values: Sequence[float | None]) -> str:
    """One bar a value, from the least to the greatest of them; a gap where there is none."""
    known = [v for v in values if v is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high - low < 1e-9:
        return "".join(" " if v is None else BARS[3] for v in values)
    scale = (len(BARS) - 1) / (high - low)
    return "".join(" " if v is None else BARS[round((v - low) * scale)] for v in values)


def clock_text(seconds: float) -> str:
    """0:07, 12:40, 3:05:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _plus_minus(value: float | None, spread: float | None, sign: str = "+/-") -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if spread is None else f"{value:.2f} {sign}{spread:.2f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _must_be_plain(console: Screen) -> bool:
    is_narrow = console.encoding.replace("-", "") != "utf8"  # no bars to draw with
    is_dumb = console.is_dumb_terminal or bool(os.environ.get("CI"))
    return not console.file.isatty() or is_dumb or is_narrow
