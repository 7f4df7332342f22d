"""The diagnosis of a run: all rules, and a verdict in one sentence."""

from __future__ import annotations

from art_cli.why import (
    episodes,
    groups,
    judge,
    kinds,
    policy,
    progress,
    results,
    signal,
    splits,
    success,
    tools,
    update,
    worth,
)
from art_cli.why.evidence import Evidence, interval
from art_cli.why.finding import Finding

RULES = (
    *(*groups.RULES, *signal.RULES, *success.RULES, *kinds.RULES, *episodes.RULES),
    *(*tools.RULES, *worth.RULES, *results.RULES, *update.RULES),
    *(*policy.RULES, *progress.RULES, *splits.RULES, *judge.RULES),
)
# Consequences of a serious finding, by the finding's name; these are not listed separately.
OF_REWARD = {"rate_too_high", "no_rise", "memorised", "noisy_evaluation", "gap_from_start"}
OF_REWARD |= {"tool_without_effect", "capped_reward", "against_success"}
OF_CALLS = {"broken_calls", "truncated", "tool_errors", "results_vary"}
FOLLOWS = {
    **dict.fromkeys(("acts_for_nothing", "same_play_other_reward"), OF_REWARD),
    "siblings_differ_at_start": OF_REWARD | OF_CALLS | {"too_hard"},
    **dict.fromkeys(("wrong_advantages", "other_baseline"), OF_REWARD | {"broken_calls"}),
    "outlier_rewards": OF_REWARD,
    "scenarios_repeat": {"tool_never_pays", "tool_abandoned", "other_kind"},
    "held_out_paid_otherwise": {"gap_from_start", "memorised", "noisy_evaluation"},
    "legality_not_shown": {"no_rise", "unsolvable_scenarios"},
    "hot_sampling": OF_CALLS | {"unknown_tool", "too_hard", "no_rise"},
    "success_falls": {"no_rise", "capped_reward", "noisy_evaluation"},
    "against_success": OF_REWARD - {"against_success"}
    | {"rate_too_low", "moves_away", "tool_abandoned", "success_falls"},
    "length_is_paid": {"against_success", "success_falls"},
    "judge_against_env": {"against_success", "capped_reward", "memorised", "success_falls"},
    "tool_breaks": OF_REWARD | {"moves_away", "broken_calls", "dead_tool", "tool_abandoned"},
    "refused_by_scenario": OF_CALLS | {"unsolvable_scenarios", "kind_never_succeeds", "no_rise"},
    "refused_actions": {"scenarios_repeat", "no_rise", "unsolvable_scenarios"},
    "foreign_results": {"kind_never_succeeds", "no_rise", "results_vary"},
    "answers_by_chance": {"unsolvable_scenarios", "no_rise"},
    "held_by_penalty": {"rate_too_low", "stale_weights", "no_rise"},
    "untrained_turns": {"rate_too_low", "no_rise"},
    "turn_limit": {"too_hard"},
    "outages_scored": {"acts_for_nothing", "constant_tool"},
    "gap_from_start": {"solved"},
}


def diagnose(run: Evidence) -> list[Finding]:
    """Return the faults of a run, the most serious and the most certain first.

    A finding that is a consequence of another one is left out.
    """
    found = [finding for rule in RULES for finding in rule(run)]
    said = [FOLLOWS.get(f.name, set[str]()) for f in found if f.weight == "serious"]
    explained = set[str]().union(*said)
    found = [f for f in found if f.name not in explained]
    return sorted(found, key=lambda f: (f.weight != "serious", -f.certainty))


def verdict(run: Evidence) -> str:
    """Return a sentence that says whether the held-out reward rose, and how certain that is."""
    val, change = run.series("val/reward"), run.val_change
    if not val:
        return (
            "Nothing was evaluated on held-out scenarios, so whether it has learned cannot be said "
            "from the training reward alone."
            if run.steps
            else "No step is finished yet."
        )
    first, last, best = val[0], val[-1], max(val, key=lambda point: point.value)
    if len(val) == 1:
        at = f"{first.value:.2f} at step {first.step}"
        return f"Held-out reward was {at}; there is nothing to compare it with yet."
    ends = f"from {first.value:.2f} (step {first.step}) to {last.value:.2f} (step {last.step})"
    more = f" Its best was {best.value:.2f} at step {best.step}." if best.value > last.value else ""
    if change is None:
        return f"Held-out reward went {ends}; how sure that is cannot be said.{more}"
    if not change.excludes_zero:
        return f"Held-out reward went {ends}: {interval(change)}, so it may be chance.{more}"
    how = "rose" if change.value > 0 else "fell"
    return f"Held-out reward {how} {ends}: {interval(change)}{_success(run, how)}.{more}"


def _success(run: Evidence, how: str) -> str:
    """Return a clause that says that the env's success metric moved the other way, if it did."""
    for name in success.NAMES:
        points = run.series(f"val/{name}")
        if len(points) > 1:
            gained = points[-1].value - points[0].value
            if gained * (1 if how == "rose" else -1) < -0.05:
                went = "rose" if gained > 0 else "fell"
                ends = f"from {points[0].value:.2f} to {points[-1].value:.2f}"
                return f", but {name} {went} {ends}"
            break
    return ""
