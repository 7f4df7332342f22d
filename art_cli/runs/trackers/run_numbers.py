"""The numbers of a run so far and their display, which the console draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
SPARK_STEPS = 40
WINDOW = 20  # steps for the time split and the estimate of the remaining time
SHORTEST_BAR = 8
TIMES = ("rollout", "score", "train", "sync", "eval")


class RunNumbers:
    """The numbers of a run so far, as rows of a panel and as plain lines."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self.total = total
        self.step = 0
        self.steps_without_signal = 0  # the latest consecutive ones
        self._clock = clock
        self._began = clock()
        self._marks: list[tuple[float, int]] = []  # end time and number of this session's steps
        self._rewards: list[float | None] = []
        self._vals: dict[int, tuple[float, float | None]] = {}  # step -> reward, half-width of CI
        self._rows: list[dict[str, Any]] = []  # the last WINDOW, including evaluations
        self._latest: dict[str, float] = {}

    def add(self, metrics: Mapping[str, Any], *, timed: bool = True) -> None:
        """Add one set of metrics. Any may be missing, None or not finite."""
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
        """Return label and content of each line of the panel that is not empty."""
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
        """Return the line of the last step for plain mode."""
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
        """Return the line for the end of the run, for both modes."""
        val = f"; val {self.val_text()}" if self._vals else ""
        took = clock_text(self._clock() - self._began)
        return f"{state} at step {self.step}/{self.total} after {took}{val}"

    def val_text(self, arrow: str = "->", plus_minus: str = "+/-") -> str:
        """Return the first, the last and the best validation reward."""
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
        if number and (full := get("data/context_full")):
            parts.append(f"{full / number:.0%} out of context")
        if crashed := get("data/crashed"):
            parts.append(f"{crashed:.0f} crashed")
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
    """Draw one bar per value, scaled from the lowest to the highest, and a gap for None."""
    known = [v for v in values if v is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high - low < 1e-9:
        return "".join(" " if v is None else BARS[3] for v in values)
    scale = (len(BARS) - 1) / (high - low)
    return "".join(" " if v is None else BARS[round((v - low) * scale)] for v in values)


def clock_text(seconds: float) -> str:
    """Return a duration as 0:07, 12:40 or 3:05:00."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _plus_minus(value: float | None, spread: float | None, sign: str = "+/-") -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if spread is None else f"{value:.2f} {sign}{spread:.2f}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
