"""A comparison of two runs: settings, versions and code, and results."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from art_cli.config.resume import flat
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.config.yaml import read_document
from art_cli.evaluation.attempts import digest_of
from art_cli.evaluation.statistics import Estimate, difference, mean
from art_cli.inspection.groups import SPLITS, Row
from art_cli.inspection.plot import metrics_of
from art_cli.inspection.provenance import made_with
from art_cli.runs.directory import RunDir
from art_cli.system.untrusted import is_number
from art_cli.types import Scenario
from art_cli.view.episodes import read_step, step_files

NAMES = ("project", "name")  # keys that always differ between runs
ABSENT = "(absent)"
TRAINING = ("train/reward", "loss/entropy", "loss/kl", "loss/grad_norm", "train/tokens")
CALLS, ENDED = "calls of ", "ended by "  # prefixes of names that a tool or a stop_reason follows
SHARES = ("success", "cut off", "failed", ENDED)  # prefixes of metrics that are shares
Values = dict[str, dict[str, float]]  # metric -> scenario -> mean over its episodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting, a version or a file that differs between the two runs."""

    key: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutMetric:
    """A metric of held-out episodes in both runs, with the change computed by scenario."""

    name: str
    first: Estimate | None
    second: Estimate | None
    change: Estimate | None  # None: the runs have no scenario in common


@dataclass(kw_only=True)
class RunDifference:
    """All differences between two runs."""

    config: list[Setting] = field(default_factory=list)
    made_with: list[Setting] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)  # runs that do not say what made them
    split: str = ""
    steps: tuple[int, int] | None = None  # of the compared evaluations, the last of each run
    num_common: int = 0  # scenarios that both played
    num_scenarios: tuple[int, int] = (0, 0)
    untrained: Estimate | None = None  # the difference of the reward before the first update
    metrics: list[HeldOutMetric] = field(default_factory=list)
    same_play: float | None = None  # share of the common episodes with identical text
    training: list[Setting] = field(default_factory=list)  # means over the last third of the steps
    unread: list[str] = field(default_factory=list)  # damaged files and lines

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as one JSON object."""
        return asdict(self) | {"verdict": verdict(self)}


def compare_runs(first: RunDir, second: RunDir) -> RunDifference:
    """Return how the second run differs from the first. Raise ConfigError for a damaged config."""
    found = RunDifference(unread=[*first.damaged(), *second.damaged()])
    documents = [read_document(run.config) for run in (first, second)]
    found.config = _settings(*documents)
    made = [made_with(run) for run in (first, second)]
    found.silent = [
        str(run.root) for run, known in zip((first, second), made, strict=True) if not known
    ]
    if not found.silent:
        found.made_with = _differing(*made)
    found.training = _training(first, second)
    _compare_held_out(found, first, second, documents)
    return found


def verdict(d: RunDifference) -> str:
    """Return a sentence: which run is better, how certain that is, and possible causes."""
    reward = next((m.change for m in d.metrics if m.name == "reward"), None)
    if d.steps is None:
        return (
            "Which is better cannot be said: at least one was not evaluated on held-out scenarios."
        )
    if reward is None:
        return (
            f"Which is better cannot be said: their {d.split} scenarios are not the same ones, and "
            "rewards on different tasks do not compare."
        )
    causes = [*d.config, *d.made_with]
    on = f"on the {d.num_common} held-out scenarios of both"
    if d.steps[0] != d.steps[1]:
        on += f" (step {d.steps[1]} against step {d.steps[0]})"
    if d.same_play == 1.0 and reward.value == 0:
        return (
            f"They end the same: each episode {on} is the same, word for word.{_no_wonder(causes)}"
        )
    change = f"{reward.value:+.3f} [{reward.low:+.3f}, {reward.high:+.3f}]"
    if not reward.is_bounded or not reward.excludes_zero:
        return f"No difference can be told {on}: reward {change}.{_causes(causes, sure=False)}"
    how = "better" if reward.value > 0 else "worse"
    return f"The second is {how} {on}: reward {change}.{_causes(causes, sure=True)}"


def _no_wonder(causes: list[Setting]) -> str:
    return f" What differs ({_named(causes)}) has changed nothing." if causes else ""


def _causes(causes: list[Setting], *, sure: bool) -> str:
    if not causes:
        return " Nothing that is known of differs between them: what does is chance, or not stored."
    if not sure:
        return f" They differ in {_named(causes)}."
    if len(causes) == 1:
        return f" All that is known to differ is {causes[0].key}."
    return f" They differ in {_named(causes)}: which of these it was cannot be said."


def _named(causes: list[Setting]) -> str:
    keys = [cause.key for cause in causes]
    return ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


# ---------------------------------------------------------------- settings


def _settings(first: dict[str, Any], second: dict[str, Any]) -> list[Setting]:
    """Return the keys that differ, marking values that are defaults."""
    least = Experiment(
        name="", env=EnvConfig(use=""), model=ModelConfig(base=""), train=TrainConfig(steps=0)
    )
    defaults = flat(asdict(least))
    ours, theirs = flat(first), flat(second)

    def shown(key: str, document: dict[str, Any]) -> str:
        if key not in document:
            return ABSENT
        is_default = key in defaults and defaults[key] == document[key]
        return f"{_plain(document[key])}{' (default)' if is_default else ''}"

    keys = dict.fromkeys([*ours, *theirs])
    return [
        Setting(key=key, first=shown(key, ours), second=shown(key, theirs))
        for key in keys
        if key not in NAMES and ours.get(key, ABSENT) != theirs.get(key, ABSENT)
    ]


def _plain(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _differing(first: dict[str, str], second: dict[str, str]) -> list[Setting]:
    return [
        Setting(key=key, first=first.get(key, ABSENT), second=second.get(key, ABSENT))
        for key in dict.fromkeys([*first, *second])
        if first.get(key) != second.get(key)
    ]


def _training(first: RunDir, second: RunDir) -> list[Setting]:
    """Return each run's means over the last third of the steps, which are not paired."""
    found = [metrics_of(run) for run in (first, second)]
    rows = []
    for name in TRAINING:
        ends = [
            [p.value for p in metrics[name][-max(1, len(metrics[name]) // 3) :]]
            for metrics in found
            if metrics.get(name)
        ]
        if len(ends) == 2:
            one, other = (f"{statistics.fmean(values):.3f}" for values in ends)
            rows.append(Setting(key=name, first=one, second=other))
    return rows


# ---------------------------------------------------------------- held-out episodes


def _compare_held_out(
    found: RunDifference, first: RunDir, second: RunDir, documents: list[dict[str, Any]]
) -> None:
    splits = [_split_of(document) for document in documents]
    steps = [_steps(run, split) for run, split in zip((first, second), splits, strict=True)]
    if splits[0] != splits[1] or not all(steps):
        return
    found.split, found.steps = splits[0], (steps[0][-1], steps[1][-1])
    last = [
        _episodes(run, splits[0], s[-1], found)
        for run, s in ((first, steps[0]), (second, steps[1]))
    ]
    rare = {name for episodes in last for name in _counts(episodes)}
    ours, theirs = (_values(episodes, rare) for episodes in last)
    common = last[0].keys() & last[1].keys()
    found.num_common, found.num_scenarios = len(common), (len(last[0]), len(last[1]))
    for name in sorted(ours.keys() | theirs.keys(), key=_rank):
        share = name.startswith(SHARES)
        one, other = ours.get(name, {}), theirs.get(name, {})
        metric = HeldOutMetric(
            name=name,
            first=mean(list(one.values()), share=share),
            second=mean(list(other.values()), share=share),
            change=difference(other, one, share=share),
        )
        found.metrics.append(metric)
    if common:
        same = [_play(last[0][s]) == _play(last[1][s]) for s in common]
        found.same_play = sum(same) / len(same)
    if steps[0][0] == steps[1][0] == 0:
        before = [_values(_episodes(run, splits[0], 0, found)) for run in (first, second)]
        found.untrained = difference(before[1].get("reward", {}), before[0].get("reward", {}))


def _split_of(document: dict[str, Any]) -> str:
    section = document.get("eval")
    split = section.get("split", "val") if isinstance(section, dict) else "val"
    return split if split in SPLITS else "val"


def _steps(run: RunDir, split: str) -> list[int]:
    return [file.step for file in step_files(run) if file.split == split]


def _episodes(run: RunDir, split: str, step: int, found: RunDifference) -> dict[str, list[Row]]:
    """Return the episodes of an evaluation by the content of their scenario."""
    file = next(f for f in step_files(run) if (f.split, f.step) == (split, step))
    read = read_step(file)
    if read.damage:
        found.unread += read.damage.splitlines()
    out: dict[str, list[Row]] = {}
    for row in read.rows:
        data = row.get("scenario")
        scenario = Scenario(
            id=str(row.get("scenario_id")),
            split="val",
            seed=row.get("seed", 0),
            data=data if isinstance(data, dict) else {},
        )
        out.setdefault(digest_of(scenario), []).append(row)
    return out


def _counts(episodes: dict[str, list[Row]]) -> set[str]:
    """Return the tools and endings that occur, as metrics that are 0 for other episodes."""
    names = (name for rows in episodes.values() for row in rows for name in _numbers(row))
    return {name for name in names if name.startswith((CALLS, ENDED))}


def _values(episodes: dict[str, list[Row]], rare: Collection[str] = ()) -> Values:
    """Return each metric by scenario. A missing metric in `rare` counts as 0."""
    out: Values = {}
    for scenario, rows in episodes.items():
        numbers = [dict.fromkeys(rare, 0.0) | _numbers(row) for row in rows]
        for name in {name for row in numbers for name in row}:
            known = [row[name] for row in numbers if name in row]
            out.setdefault(name, {})[scenario] = statistics.fmean(known)
    return out


def _numbers(row: Row) -> dict[str, float]:
    """Return the metrics of an episode: rewards, calls and its ending."""
    metrics = row.get("metrics")
    found = {k: float(v) for k, v in (metrics or {}).items() if is_number(v)}
    if is_number(row.get("reward")):
        found["reward"] = float(row["reward"])
    steps = [s for s in row.get("steps") or [] if isinstance(s, dict)]
    calls = Counter(str(s["tool"]) or "unreadable" for s in steps if s.get("tool") is not None)
    found |= {f"{CALLS}{tool}": float(num) for tool, num in calls.items()}
    found |= {f"{ENDED}{row.get('stop_reason', '?')}": 1.0}
    found |= {"cut off": float(bool(row.get("truncated"))), "failed": float(bool(row.get("error")))}
    lengths = {"turns": row.get("num_turns"), "tokens": row.get("num_sampled")}
    return found | {name: float(v) for name, v in lengths.items() if is_number(v)}


def _rank(name: str) -> tuple[int, str]:
    """Return the sort key of a metric: the reward, the env's own, lengths, then behavior."""
    last = ("turns", "tokens", "cut off", "failed", CALLS, ENDED)
    places = [n for n, begin in enumerate(last, 2) if name.startswith(begin)]
    return (0 if name == "reward" else places[0] if places else 1), name


def _play(rows: list[Row]) -> list[list[str]]:
    return [
        [str(m.get("content")) for m in row.get("messages") or [] if isinstance(m, dict)]
        for row in rows
    ]
