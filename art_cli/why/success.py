"""Findings on the env's success metric: whether the reward follows it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator

from art_cli.why.evidence import (
    Evidence,
    Row,
    estimate,
    interval,
    place,
    reward_scale,
    train_change,
    value_at,
    values_of,
)
from art_cli.why.finding import Finding

# Metrics of an env that say whether an episode reached its goal: 1 or 0.
NAMES = ("success", "solved", "correct", "passed", "won", "exact_match", "accuracy", "is_correct")
ENOUGH = 100  # trajectories, enough for a share
CLOSE = 0.1  # relative to the range of rewards
ENOUGH_GROUPS = 20  # enough for a mean difference
HALF = 0.5
KINDS = 10  # values of a key in the data: one that has more of them is no kind
STEPS = 6  # that were read: fewer have no thirds to compare
MARGIN = 0.05  # of the episodes: a fall that is worth a look
SHARE = 0.1  # of the trajectories at the top: fewer may be an exception that the env makes


def metric_of_success(rows: list[Row]) -> str | None:
    """Return the success metric that all of these rows have, or None."""
    return next((n for n in NAMES if rows and all(n in row["metrics"] for row in rows)), None)


def success(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if nothing succeeds, or if success earns no more than failure."""
    rows = [row for row in run.rows if row["reward"] is not None]
    name = metric_of_success(rows)
    if name is None or len(rows) < ENOUGH:
        return
    top = max(row["reward"] for row in rows)
    if top <= min(row["reward"] for row in rows):
        return
    best = [row for row in rows if row["reward"] > top - 1e-6]
    failed, won = ([r for r in best if bool(r["metrics"][name]) == w] for w in (False, True))
    if not any(row["metrics"][name] for row in rows):
        yield Finding(
            name="never_succeeds",
            weight="notable",
            title=f"No episode succeeds, by the env's own metric {name}",
            evidence=f"it is 0 in all {len(rows)} trajectories; the best of them earned "
            f"{top:.2f} ({len(best)} of them)",
            reason="Part of the reward cannot be earned: the score asks for what the policy is "
            "not told or cannot do, such as another language or another form of the answer.",
            change="the env's score(): compare the best trajectory with what it expects",
            certainty=0.7,
            example=place(best[-1]),
        )
    elif len(best) >= ENOUGH and SHARE < len(failed) / len(best) < 1 - SHARE:
        yield Finding(
            name="capped_reward",
            weight="notable",
            title="Success earns no more than failure",
            evidence=f"{len(failed)} of the {len(best)} trajectories with the highest reward "
            f"({top:.2f}) have {name} 0{_what_else(failed, won)}",
            reason="The reward does not tell these from successes, so the difference is not "
            "learned.",
            change="the env's score(): let success earn more than anything else",
            certainty=0.75,
            example=place(failed[-1]),
        )


def _what_else(failed: list[Row], succeeded: list[Row]) -> str:
    """Return a clause with another metric that failures have more of than successes."""

    def share(rows: list[Row], name: str) -> float:
        return sum(row["metrics"].get(name, 0) > 0 for row in rows) / max(1, len(rows))

    names = sorted({n for row in failed for n in row["metrics"]} - {*NAMES})
    gaps = {n: share(failed, n) - share(succeeded, n) for n in names}
    most = max(names, key=lambda n: gaps[n], default="")
    if not most or gaps[most] < HALF:
        return ""
    return f", and {share(failed, most):.0%} of them have {most} above 0 (successes: " + (
        f"{share(succeeded, most):.0%})"
    )


def against_success(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if success earns less than failure, in a whole run or in one part.

    Siblings of one group are compared. A part consists of the scenarios with the same value in
    their data, such as a seat. There is no finding for parts with few groups that have both, nor if
    the two earn about the same.
    """
    name = metric_of_success([row for row in run.rows if row["reward"] is not None])
    if name is None:
        return
    gaps: list[tuple[list[Row], float]] = []
    for group in run.groups:
        won, lost = (
            [r for r in group if r["reward"] is not None and bool(r["metrics"][name]) == is_won]
            for is_won in (True, False)
        )
        if won and lost:
            paid, unpaid = (statistics.fmean(r["reward"] for r in each) for each in (won, lost))
            gaps.append((lost, paid - unpaid))
    parts = [("", gaps)]
    for path, values in values_of(lost[0]["scenario"] or {} for lost, _ in gaps).items():
        if 1 < len(values) <= KINDS:
            of: dict[str, list[tuple[list[Row], float]]] = defaultdict(list)
            for lost, gap in gaps:
                of[value_at(lost[0]["scenario"], path)].append((lost, gap))
            parts += [(f" where {path} is {value}", of[value]) for value in sorted(of)]
    for where, part in parts:
        gap = estimate([gap for _, gap in part]) if len(part) >= ENOUGH_GROUPS else None
        if gap and gap.high < -CLOSE * reward_scale(run):
            yield Finding(
                name="against_success",
                weight="serious",
                title=f"Success earns less than failure{where}",
                evidence=f"in {len(part)} groups, siblings with {name} earned {interval(gap)} "
                "beside those without",
                reason="The policy learns to fail.",
                change="the env's score(): its sign, whose reward it is, and what costs more than "
                "success earns",
                certainty=0.75,  # another finding may explain it
                example=place(part[-1][0][0]),
            )
            return


def success_falls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where success falls, from the first third to the last, and the reward not.

    Silent where scenarios or opponents grow harder: with a curriculum, with dynamic sampling
    (it leaves out groups that all succeed), and with `env.opponents`.
    """
    train = run.experiment.train
    name = metric_of_success([row for row in run.rows if row["reward"] is not None])
    if name is None or len(run.train) < STEPS or run.experiment.env.opponents:
        return
    if train.curriculum != "uniform" or train.dynamic_sampling:
        return
    lost = train_change(run, lambda row: float(row["metrics"][name]))
    earned = train_change(run)
    if lost is None or earned is None:
        return
    if lost.high < 0 and lost.value < -MARGIN and earned.high >= 0:
        yield Finding(
            name="success_falls",
            # What is excluded by its interval is no matter of chance.
            weight="serious" if lost.high < -MARGIN else "notable",
            title="Success falls while the reward does not",
            evidence=f"from the first third of the steps to the last, {name} changed by "
            f"{interval(lost)}, and the reward by {interval(earned)}",
            reason="The reward pays for something else than success, and the policy learns that.",
            change="the env's score(), and what each turn or call adds to it: compare two "
            "siblings, one with success and one with a higher reward",
            certainty=0.8,
            example=_paid_failure(run, name),
        )


def _paid_failure(run: Evidence, name: str) -> str:
    """Return where the last failure is that earned more than a sibling that succeeded."""
    for group in reversed(run.groups):
        rows = [row for row in group if row["reward"] is not None]
        failed, won = ([r for r in rows if bool(r["metrics"][name]) == w] for w in (False, True))
        if failed and won:
            best = max(failed, key=lambda row: row["reward"])
            if best["reward"] > min(row["reward"] for row in won):
                return place(best)
    return ""


RULES = (success, against_success, success_falls)
