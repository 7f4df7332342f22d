"""Findings on the judge: its scores and its latency."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations

from art_cli.llms.judges.audit import kendall_tau, mean_with_ci
from art_cli.runs.trajectories import reward_parts_of
from art_cli.why.evidence import Evidence, Row, last_third, mean, place
from art_cli.why.finding import Finding

Scores = tuple[float, float]  # of one trajectory: (the judge's score, the env's score)


def judge_ties(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the judge gives siblings equal scores.

    Counts only pairs that the env's score tells apart, if there are any.
    """
    ties, which = mean(last_third(run.series("judge/tie_rate"))), "the last pairs"
    scored = [pair for group in run.late_groups for pair in _scored_pairs(group)]
    if scored:
        told_apart = [a[0] == b[0] for a, b in scored if a[1] != b[1]]
        ties = statistics.fmean(told_apart) if len(told_apart) >= 12 else 0.0
        which = f"the last {len(told_apart)} pairs that the env's own score tells apart"
    if ties > 0.5:
        yield Finding(
            name="judge_ties",
            weight="serious" if ties > 0.8 else "notable",
            title="The judge cannot tell siblings apart",
            evidence=f"{ties:.0%} of {which} have the same score",
            reason="Siblings with one score teach nothing.",
            change="judge.rubric: say what makes one better than another; a stronger judge.model",
            certainty=0.7,
        )


def judge_against_env(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the judge orders siblings differently from the env's score."""
    agreements = [a for group in run.groups if (a := _agreement(group)) is not None]
    if len(agreements) < 12:
        return
    agreement = statistics.fmean(agreements)
    if agreement < 0.6:
        worst = min(
            (g for g in run.groups if _agreement(g) is not None), key=lambda g: _agreement(g) or 0.0
        )
        yield Finding(
            name="judge_against_env",
            weight="serious",
            title="The judge prefers what the env's own score does not",
            evidence=f"of pairs that the env tells apart it orders {agreement:.0%} alike, in "
            f"{len(agreements)} groups; chance is 50%",
            reason="The policy learns what the judge likes.",
            change="art judge audit; judge.rubric; reward.gate: env",
            certainty=0.9,
            example=place(worst[0]),
        )


def judge_favours_place(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the judge's scores depend on the order of the listed trajectories."""
    gains = [point.value for point in run.series("judge/first_gain")]
    gain = mean_with_ci(gains) if len(gains) >= 8 else None
    if gain is None or abs(gain.value) < 0.05 or not (gain.low > 0.02 or gain.high < -0.02):
        return
    favours = gain.value > 0
    yield Finding(
        name="judge_favours_place",
        weight="serious" if abs(gain.value) > 0.15 else "notable",
        title=f"The judge {'favours' if favours else 'marks down'} the first listed",
        evidence=f"what is listed first gets {gain.value:+.2f} [{gain.low:+.2f}, "
        f"{gain.high:+.2f}] beside its siblings, over {len(gains)} steps; the order is drawn, so "
        "0 is due",
        reason="Part of the reward is chance.",
        change="judge.votes: 2 or more, each in another order; a stronger judge.model; art judge "
        "audit measures it",
        certainty=0.95,  # explains why the judge disagrees with the env
    )


def judge_favours_length(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the judge prefers longer siblings more than the env's score does."""
    taus = [tau for group in run.groups if (tau := _length_tau(group, _judged)) is not None]
    judged = mean_with_ci(taus) if len(taus) >= 12 else None
    if judged is None or judged.low < 0.4:
        return
    own = [tau for group in run.groups if (tau := _length_tau(group, _env_score)) is not None]
    due = mean_with_ci(own) if len(own) >= 12 else None
    if judged.low <= due.high if due else judged.value < 0.8:
        return
    said = f"{due.value:+.2f} for the env's own score" if due else "the env has no score of its own"
    longest = max(run.late_groups[-1], key=_length)
    yield Finding(
        name="judge_favours_length",
        weight="serious" if due else "notable",
        title="The judge favours the longest",
        evidence=f"within groups its scores and lengths go together (Kendall's tau "
        f"{judged.value:+.2f} in {len(taus)} groups; {said})",
        reason="The policy learns to say more, not to do better.",
        change="judge.rubric: that length earns nothing; art judge audit; reward.gate: env",
        certainty=0.95,  # explains why the judge disagrees with the env
        example=place(longest),
    )


def judge_fails(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if calls of the judge fail."""
    failures, groups = run.series("judge/failures"), run.series("data/groups")
    lost = sum(p.value for p in failures) / max(1.0, sum(p.value for p in groups))
    if lost > 0.05:
        rows = [
            row
            for row in run.rows
            if row["reward"] is None and row["error"] and row["stop_reason"] != "error"
        ]
        why = Counter(row["error"].splitlines()[0] for row in rows).most_common(1)
        is_cut = bool(why) and "cut off" in why[0][0]
        yield Finding(
            name="judge_fails",
            weight="serious" if lost > 0.3 else "notable",
            title="The judge fails",
            evidence=f"{lost:.0%} of the groups got no scores"
            + (f"; most often: {why[0][0]}" if why else ""),
            reason="Their rollouts are paid for and teach nothing.",
            change="judge.params: {max_tokens: ...}, more than its longest answer; a smaller "
            "train.group_size"
            if is_cut
            else "judge.model, judge.timeout, or judge.on_failure: env",
            certainty=0.9,
            example=place(rows[-1]) if rows else "",
        )


def slow_judge(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if most of a step is spent waiting for the judge."""
    total = sum(p.value for p in run.series("time/step_s"))
    judged = sum(p.value for p in run.series("time/score_s"))
    if total > 60 and judged / total > 0.4:
        yield Finding(
            name="slow_judge",
            weight="notable",
            title="Most of the time is spent waiting for the judge",
            evidence=f"{judged / total:.0%} of all steps",
            reason="The machine idles meanwhile.",
            change="train.max_staleness: 1 rolls out while the judge is asked; or a quicker "
            "judge.model",
        )


def _judged(row: Row) -> float | None:
    return reward_parts_of(row).get("judge")


def _env_score(row: Row) -> float | None:
    return reward_parts_of(row).get("env")


def _length(row: Row) -> int:
    return sum(len(str(m["content"])) for m in row["messages"])


def _length_tau(group: list[Row], score: Callable[[Row], float | None]) -> float | None:
    return kendall_tau([score(row) for row in group], [_length(row) for row in group])


def _scored_pairs(group: list[Row]) -> Iterator[tuple[Scores, Scores]]:
    """Yield pairs of siblings that have both scores, the judge's and the env's."""
    scored = [
        (judged, env)
        for row in group
        if (judged := _judged(row)) is not None and (env := _env_score(row)) is not None
    ]
    return combinations(scored, 2)


def _agreement(group: list[Row]) -> float | None:
    """Return the share of pairs that judge and env order alike, among those without a tie in
    either.
    """
    pairs = [
        (a[0] - b[0]) * (a[1] - b[1]) > 0
        for a, b in _scored_pairs(group)
        if a[0] != b[0] and a[1] != b[1]
    ]
    return sum(pairs) / len(pairs) if pairs else None


RULES = (
    judge_ties,
    judge_against_env,
    judge_favours_place,
    judge_favours_length,
    judge_fails,
    slow_judge,
)
