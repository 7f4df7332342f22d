"""Comparison of candidates: estimates, differences to the baseline, and results by tag."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from art_cli.evaluation.attempts import Attempt
from art_cli.evaluation.candidates import Candidate
from art_cli.evaluation.play import EvalTask, Record
from art_cli.evaluation.statistics import Estimate, difference, mean, pass_hat
from art_cli.types import TAGS

PASS = "pass^"  # prefix of metrics for the share of passed scenarios
SUCCESS = "success"  # the env's metric for whether an attempt passed
Values = dict[str, dict[str, float]]  # metric -> scenario -> mean over its trials
WAITED = "seconds"  # depends on concurrency too, since episodes wait for each other
ZERO = Estimate(0.0, 0.0, 0.0)  # for metrics that never occur
Passed = Callable[[Attempt], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One candidate's results. Means are over scenarios, after averaging each scenario's trials."""

    candidate: Candidate
    metrics: dict[str, Estimate]
    gaps: dict[str, Estimate]  # to the baseline, on the same scenarios; {} for itself
    by: dict[str, dict[str, dict[str, Estimate]]]  # tag -> its value -> pass^1 and reward
    attempts: list[Attempt]
    failed: list[Attempt]
    num_known: int

    @property
    def num_scenarios(self) -> int:
        """The number of scenarios with at least one finished attempt."""
        return len({a.digest for a in self.attempts})

    @property
    def errors(self) -> list[str]:
        """The distinct errors of failed attempts, one line each."""
        return sorted({_line(a) for a in self.failed})

    @property
    def usd(self) -> float:
        """The cost of the finished attempts in US dollars, including earlier evaluations."""
        return sum(a.usd for a in self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidates side by side on the same scenarios."""

    split: str
    trials: int
    baseline: str
    success: str  # description of what counts as passed
    is_by_metric: bool  # passing is decided by the env's own metric
    passed: Passed
    columns: list[Column]

    @property
    def metrics(self) -> list[str]:
        """The metrics to show, the most important first."""
        found = {n: None for c in self.columns for n, e in c.metrics.items() if e != ZERO}
        hidden = {SUCCESS} if self.is_by_metric else set()  # equal to pass^1
        first = [*(f"{PASS}{k}" for k in range(1, self.trials + 1)), "reward"]
        return [*first, *(n for n in found if n not in hidden.union(first))]

    @property
    def tags(self) -> list[str]:
        """The tags with more than one value."""
        found = {tag: {v for c in self.columns for v in c.by.get(tag, ())} for tag in TAGS}
        return [tag for tag in TAGS if len(found[tag]) > 1]

    def rows(self) -> dict[str, Any]:
        """Return the results as JSON values, by candidate."""
        return {c.candidate.name: self._row(c) for c in self.columns}

    def _row(self, c: Column) -> dict[str, Any]:
        return {
            "split": self.split,
            "step": c.candidate.step,
            "scenarios": c.num_scenarios,
            "trials": self.trials,
            "episodes": len(c.attempts),
            "failed": len(c.failed),
            "errors": c.errors[:10],
            "success": self.success,
            "usd": c.usd,
            "metrics": _plain(c.metrics),
            "baseline": None if c.candidate.name == self.baseline else self.baseline,
            "difference": _plain(c.gaps),
            "by": {tag: {v: _plain(m) for v, m in found.items()} for tag, found in c.by.items()},
        }


def is_sure(name: str, gap: Estimate) -> bool:
    """Return whether a difference in a metric is significant."""
    return gap.excludes_zero and name != WAITED


def compare(
    task: EvalTask,
    records: list[Record],
    *,
    baseline: str,
    threshold: float | None,
) -> Comparison:
    """Compare all candidates.

    An attempt passed if the env's metric `success` is 1. Without that metric, or with a
    `threshold`, it passed if its reward is at least the threshold (1 by default).
    """
    played = {r.candidate.name: r.in_order(task) for r in records}
    everything = [a for attempts in played.values() for a in attempts]
    has_metric = threshold is None and any(SUCCESS in a.metrics for a in everything)
    least = 1.0 if threshold is None else threshold

    def passed(a: Attempt) -> bool:
        return a.metrics.get(SUCCESS, 0.0) >= 1.0 if has_metric else (a.reward or 0.0) >= least

    values = {name: _values(attempts, passed) for name, attempts in played.items()}
    theirs = values[baseline]
    return Comparison(
        split=task.split,
        trials=task.trials,
        baseline=baseline,
        success="metric success is 1" if has_metric else f"reward is at least {least:g}",
        is_by_metric=has_metric,
        passed=passed,
        columns=[
            Column(
                candidate=r.candidate,
                metrics=_estimates(ours),
                gaps={} if ours is theirs else _gaps(ours, theirs),
                by=_by_tag(played[r.candidate.name], passed),
                attempts=played[r.candidate.name],
                failed=r.failed,
                num_known=r.num_known,
            )
            for r, ours in zip(records, values.values(), strict=True)
        ],
    )


def _values(attempts: list[Attempt], passed: Passed) -> Values:
    by_scenario: dict[str, list[Attempt]] = {}
    for a in attempts:
        by_scenario.setdefault(a.digest, []).append(a)
    found: Values = {}
    for scenario, trials in by_scenario.items():
        successes = sum(passed(a) for a in trials)
        for k in range(1, len(trials) + 1):
            found.setdefault(f"{PASS}{k}", {})[scenario] = pass_hat(successes, len(trials), k)
        for name, numbers in _numbers(trials).items():
            found.setdefault(name, {})[scenario] = statistics.fmean(numbers)
    return found


def _numbers(trials: list[Attempt]) -> dict[str, list[float]]:
    """Return all measurements of a scenario's trials. An env's own metric overrides one of ours."""
    found: dict[str, list[float]] = {"reward": [a.reward for a in trials if a.reward is not None]}
    for a in trials:
        for name, value in a.metrics.items():
            if name != "reward":
                found.setdefault(name, []).append(value)
    measured = {
        "turns": [float(a.num_turns) for a in trials],
        "tokens": [float(a.num_tokens) for a in trials],
        "tool_calls": [float(a.num_tool_results) for a in trials],
        "tool_errors": [float(a.num_tool_errors) for a in trials],
        "truncated": [float(a.truncated) for a in trials],
        "usd": [a.usd for a in trials],
        WAITED: [a.seconds for a in trials],
    }
    return measured | found


def _estimates(values: Values) -> dict[str, Estimate]:
    found = {
        name: mean(list(by_scenario.values()), share=name.startswith(PASS) or name == SUCCESS)
        for name, by_scenario in values.items()
    }
    return {name: e for name, e in found.items() if e is not None}


def _gaps(ours: Values, theirs: Values) -> dict[str, Estimate]:
    found = {
        name: difference(ours[name], theirs[name], share=name.startswith(PASS) or name == SUCCESS)
        for name in ours
        if name in theirs
    }
    return {name: e for name, e in found.items() if e is not None}


def _by_tag(attempts: list[Attempt], passed: Passed) -> dict[str, dict[str, dict[str, Estimate]]]:
    out: dict[str, dict[str, dict[str, Estimate]]] = {}
    for tag in TAGS:
        for value in sorted({a.tags[tag] for a in attempts if tag in a.tags}):
            found = _estimates(_values([a for a in attempts if a.tags.get(tag) == value], passed))
            kept = {k: v for k, v in found.items() if k.startswith(PASS) or k == "reward"}
            out.setdefault(tag, {})[value] = kept
    return out


def _plain(estimates: dict[str, Estimate]) -> dict[str, Any]:
    return {name: asdict(e) for name, e in estimates.items()}


def _line(a: Attempt) -> str:
    return (a.error or "score() gave None").partition("\n")[0]
