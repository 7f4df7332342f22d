"""All rules over one run, and a verdict in a sentence."""

from __future__ import annotations

from art_cli.why import costs, episodes, policy, progress, signal
from art_cli.why.evidence import Evidence, first_third, last_third, mean
from art_cli.why.finding import RunFinding

RULES = (*signal.RULES, *episodes.RULES, *policy.RULES, *progress.RULES, *costs.RULES)


def diagnose(run: Evidence) -> list[RunFinding]:
    """Return what is wrong with a run, the most serious and the most certain first."""
    found = [finding for rule in RULES for finding in rule(run)]
    return sorted(found, key=lambda f: (f.weight != "serious", -f.certainty))


def verdict(run: Evidence) -> str:
    """Say in a sentence whether the reward rose."""
    val = run.val_change
    if val is not None:
        gained, half = val
        steps = max(run.held_out)
        how = "rose" if gained > half else "fell" if gained < -half else "did not change for sure"
        return f"The held-out reward {how} over {steps} steps: {gained:+.2f} ± {half:.2f}."
    points = run.series("train/reward")
    if not points:
        return "No step is finished yet."
    began, ended = mean(first_third(points)), mean(last_third(points))
    return (
        f"The train reward was {began:.2f} in the first third of {run.steps} steps and {ended:.2f} "
        "in the last; there is no held-out evaluation to compare."
    )
