"""Findings on success as the env itself counts it: does the reward follow it?"""

from __future__ import annotations

from collections.abc import Iterator

from art_cli.why.evidence import Evidence, place
from art_cli.why.finding import RunFinding

# Metrics of an env that say whether an episode reached its goal: 1, or 0.
NAMES = ("success", "solved", "correct", "passed", "won", "exact_match", "accuracy", "is_correct")
ENOUGH = 100  # trajectories, of which a share can be known
SHARE = 0.1  # of the trajectories at the top: fewer may be an exception that the env makes


def success(run: Evidence) -> Iterator[RunFinding]:
    """Yield a finding where nothing succeeds, or where success earns no more than failure."""
    rows = [row for row in run.rows if row["reward"] is not None]
    name = next((n for n in NAMES if rows and all(n in row["metrics"] for row in rows)), None)
    if name is None or len(rows) < ENOUGH:
        return
    top = max(row["reward"] for row in rows)
    if top <= min(row["reward"] for row in rows):
        return
    best = [row for row in rows if row["reward"] > top - 1e-6]
    failed = [row for row in best if not row["metrics"][name]]
    if not any(row["metrics"][name] for row in rows):
        yield RunFinding(
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
        yield RunFinding(
            name="capped_reward",
            weight="notable",
            title="Success earns no more than failure",
            evidence=f"{len(failed)} of the {len(best)} trajectories with the highest reward "
            f"({top:.2f}) have {name} 0",
            reason="A cap on the reward hides the last part of the task, so it is not learned.",
            change="the env's score(): let success earn more than anything else",
            certainty=0.75,
            example=place(failed[-1]),
        )


RULES = (success,)
