"""A plot of a metric over steps in characters."""

from __future__ import annotations

from collections.abc import Sequence

from art_cli.errors import UsageError, did_you_mean
from art_cli.runs.directory import RunDir, step_of
from art_cli.system.untrusted import is_number
from art_cli.why.evidence import Point

HEIGHT = 14  # lines
NARROWEST = 20  # columns
ROWS = HEIGHT - 3  # lines within the frame
LABEL_EVERY = 2  # rows between labels
TICK_COLUMNS = 12  # columns of a label on the x axis, with space around it
# For terminals without the box-drawing characters.
ASCII = str.maketrans("┌┐└┘┤├┬┴─│", "++++||++-|")


def metrics_of(run: RunDir) -> dict[str, list[Point]]:
    """Return the finite values of each metric by step, also for metrics that have none."""
    found: dict[str, list[Point]] = {}
    for row in sorted(run.read_metrics(), key=step_of):
        for name, value in row.items():
            points = found.setdefault(name, [])
            if is_number(value):
                points.append(Point(step_of(row), float(value)))
    found.pop("training_step", None)
    return found


def points_of(run: RunDir, name: str, metrics: dict[str, list[Point]]) -> list[Point]:
    """Return a metric's values. Raise UsageError, which lists the metrics, if there are none."""
    if metrics.get(name):
        return metrics[name]
    if name in metrics:
        raise UsageError(f"{name} was never a finite number in {run.metrics}")
    near = did_you_mean(name, metrics)
    raise UsageError(f"{run.root} has no metric {name!r}.{near} See all: art runs {run.root}")


def drawn(points: Sequence[Point], width: int, *, can_draw: bool) -> str:
    """Return a plot with lines of at most `width` characters, in ASCII unless `can_draw`."""
    import plotext

    # All ticks are given here, because its own are misplaced in a low plot.
    steps = sorted({point.step for point in points})
    low, high = _limits([point.value for point in points])
    plotext.terminal.limit(False, False)  # the width is given, so it needs no terminal
    figure = plotext.figure
    figure.clear()
    figure.theme("colorless")
    figure.plot_size(max(width, NARROWEST), HEIGHT)
    values = [point.value for point in points]
    marker = "hd" if can_draw else "*"
    curve = figure.signal([point.step for point in points], values, marker=marker)
    figure.draw(curve.lines())
    heights = [low + (high - low) * row / (ROWS - 1) for row in range(0, ROWS, LABEL_EVERY)]
    figure.ruler("y").lim(low, high).ticks(heights, [f"{height:.3g}" for height in heights])
    shown = _spread(steps, max(2, width // TICK_COLUMNS))
    figure.ruler("x").ticks(shown, [str(step) for step in shown])
    text = figure.build().string(colorless=True)
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines).rstrip("\n").translate({} if can_draw else ASCII)


def _limits(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low < high:
        return low, high
    room = abs(low) / 2 or 0.5  # a flat curve is centered
    return low - room, high + room


def _spread(steps: list[int], most: int) -> list[int]:
    num = min(len(steps), most)
    return [steps[i * (len(steps) - 1) // max(num - 1, 1)] for i in range(num)]
