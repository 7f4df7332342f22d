"""The evidence in a run directory: settings, metrics over steps, trajectories."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from art_cli.config.load import load_experiment
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.envs.game import SEAT
from art_cli.errors import ArtError
from art_cli.evaluation.statistics import Estimate, difference
from art_cli.evaluation.statistics import mean as interval_of_mean
from art_cli.runs.directory import RunDir, step_of
from art_cli.runs.trajectories import grouped, read_good_rows
from art_cli.system.untrusted import is_number
from art_cli.types import Split

Row = dict[str, Any]
READ_STEPS = 24  # training steps whose trajectories are read: the whole run, evenly, and its end
LAST_STEPS = 4
NEEDED = {
    *("step", "split", "group", "index", "scenario_id", "seed", "scenario"),
    *("reward", "metrics", "stop_reason", "truncated", "error", "num_sampled"),
}
LISTS = {  # lists of a row, and the keys that their objects need
    "steps": {"tool", "result", "is_error"},
    "messages": {"role", "content"},
    "sequences": {"ids", "mask", "engine_logprobs"},
}


@dataclass(frozen=True, slots=True)
class Point:
    """A metric at one step."""

    step: int
    value: float


@dataclass(kw_only=True)
class Evidence:
    """The evidence for the rules of `art why`. It is read once and never changed."""

    experiment: Experiment  # the defaults if the config cannot be used
    metrics: list[Row]
    train: dict[int, list[list[Row]]] = field(default_factory=dict)  # step -> groups of rows
    held_out: dict[int, list[Row]] = field(
        default_factory=dict
    )  # of the first evaluation, the last
    unread: list[str] = field(default_factory=list)  # damaged files and lines

    def series(self, name: str) -> list[Point]:
        """Return the finite values of a metric, ordered by step."""
        found = [(step_of(row), row[name]) for row in self.metrics if is_number(row.get(name))]
        return [
            Point(step, float(value)) for step, value in sorted(found, key=lambda pair: pair[0])
        ]

    def ratio(self, over: str, under: str) -> list[Point]:
        """Return one metric divided by another, at the steps that have both."""
        below = {p.step: p.value for p in self.series(under)}
        return [
            Point(p.step, p.value / below[p.step]) for p in self.series(over) if below.get(p.step)
        ]

    @property
    def steps(self) -> int:
        """The number of updates."""
        return max((p.step for p in self.series("train/reward")), default=0)

    @property
    def groups(self) -> list[list[Row]]:
        """All groups of the training steps that were read, in order."""
        return [group for step in sorted(self.train) for group in self.train[step]]

    @property
    def late_groups(self) -> list[list[Row]]:
        """The groups of the last third of the steps that were read."""
        steps = sorted(self.train)
        late = steps[-max(1, len(steps) // 3) :]
        return [group for step in late for group in self.train[step]]

    @property
    def rows(self) -> list[Row]:
        """All trajectories of the training steps that were read."""
        return [row for group in self.groups for row in group]

    @cached_property
    def val_change(self) -> Estimate | None:
        """The mean change of held-out rewards from the first to the last evaluation, by scenario.

        None if fewer than two scenarios were played in both.
        """
        if len(self.held_out) < 2:
            return None
        first, last = (by_scenario(self.held_out[step]) for step in sorted(self.held_out))
        change = difference(last, first)
        return change if change and change.is_bounded else None


def read_evidence(run: RunDir, most_steps: int = READ_STEPS) -> Evidence:
    """Read a run, which may be unfinished or partly damaged.

    With `most_steps` 0, no training step is read, which is fast and enough for a verdict.
    """
    unread = list(run.damaged())
    try:
        experiment = load_experiment([run.config], []).experiment
    except ArtError as e:
        unread.append(f"{e}\n(the defaults are taken for what the config says)")
        experiment = Experiment(
            name=run.root.name,
            env=EnvConfig(use="unknown"),
            model=ModelConfig(base="unknown"),
            train=TrainConfig(steps=0),
        )
    evidence = Evidence(experiment=experiment, metrics=run.read_metrics(), unread=unread)
    for step in _spread(run.trajectory_steps("train")) if most_steps else ():
        if rows := _rows(run, step, "train", unread):
            evidence.train[step] = grouped(rows)
    split = experiment.eval.split if experiment.eval else "val"
    steps = run.trajectory_steps(split)
    for step in {*steps[:1], *steps[-1:]}:
        if rows := _rows(run, step, split, unread):
            evidence.held_out[step] = rows
    return evidence


def interval(change: Estimate) -> str:
    """Return a change and its 95% interval as text."""
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"


def mean(points: list[Point]) -> float:
    """Return the mean value, or NaN without points."""
    return statistics.fmean(p.value for p in points) if points else math.nan


def first_third(points: list[Point]) -> list[Point]:
    """Return the first third of a series, at least one point."""
    return points[: max(1, len(points) // 3)]


def last_third(points: list[Point]) -> list[Point]:
    """Return the last third of a series, at least one point."""
    return points[-max(1, len(points) // 3) :]


def rewards_of(group: list[Row]) -> list[float]:
    """Return the rewards of a group, without trajectories that have none."""
    return [row["reward"] for row in group if row["reward"] is not None]


def reward_scale(run: Evidence) -> float:
    """Return the span of the rewards that occurred, which is 1 for most tasks."""
    rewards = [r for group in run.groups for r in rewards_of(group)]
    span = max(rewards) - min(rewards) if rewards else 1.0
    return span if math.isfinite(span) and span > 0 else 1.0


def estimate(values: list[float]) -> Estimate | None:
    """Return a mean and its 95% interval, or None for fewer than two values."""
    found = interval_of_mean(values)
    return found if found and found.is_bounded else None


def train_change(run: Evidence, value: Callable[[Row], float] | None = None) -> Estimate | None:
    """Return the change of the train reward, or of a value, from the first third of steps to the
    last.

    The two thirds have different scenarios: each group's mean is one sample, and the variances of
    the two means add up.
    """

    def values(group: list[Row]) -> list[float]:
        if value is None:
            return rewards_of(group)
        return [value(row) for row in group if row["reward"] is not None]

    steps = sorted(run.train)
    third = max(1, len(steps) // 3)
    ends = [
        estimate([statistics.fmean(v) for s in part for g in run.train[s] if (v := values(g))])
        for part in (steps[:third], steps[-third:])
    ]
    if ends[0] is None or ends[1] is None:
        return None
    change = ends[1].value - ends[0].value
    error = math.hypot(ends[1].value - ends[1].low, ends[0].value - ends[0].low)
    return Estimate(change, change - error, change + error)


def played(row: Row) -> tuple[str, int]:
    """Return the key of a held-out episode, which is the same in each evaluation."""
    return row["scenario_id"], row["index"]


def opening_of(row: Row) -> tuple[str, ...]:
    """Return the messages before the model's first turn."""
    told: list[str] = []
    for message in row["messages"]:
        if message["role"] == "assistant":
            break
        told.append(str(message["content"]))
    return tuple(told)


def scenario_of(row: Row) -> tuple[object, ...]:
    """Return a scenario's content, regardless of its id: its opening, and its data or seed."""
    data = {name: value for name, value in row["scenario"].items() if name != SEAT}
    return opening_of(row), json.dumps(data, sort_keys=True) if data else row["seed"]


def values_of(data: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Count the values at each path in scenarios' data. A list counts as one value."""
    found: dict[str, Counter[str]] = defaultdict(Counter)

    def read(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                read(each, f"{path}.{key}" if path else str(key))
        else:
            found[path][json.dumps(value, sort_keys=True)] += 1

    for each in data:
        read(each, "")
    return found


def value_at(data: dict[str, Any] | None, path: str) -> str:
    """Return the value at a path of `values_of`, or an empty text."""
    value: Any = data or {}
    for key in path.split("."):
        if not isinstance(value, dict) or key not in value:
            return ""
        value = value[key]
    return json.dumps(value, sort_keys=True)


def arguments_of(step: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call, or an empty object if they are not one."""
    found = step.get("arguments")
    return found if isinstance(found, dict) else {}


def conduct_of(row: Row) -> tuple[str, ...]:
    """Return the model's turns as text."""
    return tuple(str(m["content"]) for m in row["messages"] if m["role"] == "assistant")


def place(row: Row) -> str:
    """Return the place of a trajectory, as a command that shows it."""
    split = "" if row["split"] == "train" else f" --split {row['split']}"
    return f"sibling {row['index']} in  art show RUN {row['step']} {row['group']}{split}"


def short(text: Any) -> str:
    """Return a text on one line of at most 100 characters."""
    one = " ".join(str(text).split())
    return one if len(one) <= 100 else one[:97] + "..."


def by_scenario(rows: list[Row]) -> dict[str, float]:
    """Return the mean reward of each scenario."""
    rewards: dict[str, list[float]] = {}
    for row in rows:
        if row["reward"] is not None:
            rewards.setdefault(row["scenario_id"], []).append(row["reward"])
    return {scenario: statistics.fmean(values) for scenario, values in rewards.items()}


def _rows(run: RunDir, step: int, split: Split, unread: list[str]) -> list[Row]:
    file = run.trajectory_file(step, split)
    rows, damage = read_good_rows(file)
    unread += damage.splitlines()
    good = [row for row in rows if _is_whole(row)]
    if len(good) < len(rows):
        unread.append(f"{file}: {len(rows) - len(good)} of {len(rows)} lines are no trajectories")
    for row in good:  # null is a number that was not finite: the rules compare and add numbers
        row["metrics"] = {name: n for name, n in row["metrics"].items() if n is not None}
    return good


def _is_whole(row: Row) -> bool:
    """Return whether a row has all keys of a trajectory; other versions of art may write fewer."""
    return row.keys() >= NEEDED | LISTS.keys() and all(
        part.keys() >= needed for name, needed in LISTS.items() for part in row[name]
    )


def _spread(steps: list[int]) -> list[int]:
    if len(steps) <= READ_STEPS:
        return steps
    rest = steps[:-LAST_STEPS]
    num = READ_STEPS - LAST_STEPS
    return [rest[i * (len(rest) - 1) // (num - 1)] for i in range(num)] + steps[-LAST_STEPS:]
