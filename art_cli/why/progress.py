"""Findings on progress: the reward over steps, train against held-out scenarios, and rewards that
pay for length.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator

from art_cli.why.evidence import (
    Evidence,
    Row,
    by_scenario,
    estimate,
    first_third,
    interval,
    last_third,
    mean,
    place,
    reward_scale,
    rewards_of,
    scenario_of,
    train_change,
    values_of,
)
from art_cli.why.finding import Finding

ENOUGH = 32  # scenarios per split, enough to compare their kinds
KINDS = 10  # limit of values of a key in the data: a key with more of them does not define kinds
DROP = 0.1  # of a reward between 0 and 1
GAP = 0.15  # of the scale of rewards, between splits
NEAR_TOP = 0.25  # of that scale, below the best reward: little is left to learn
RISE = 0.15  # of a held-out reward: the interval of 64 episodes alone is 0.1 wide to each side


def falls(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the reward falls, from its maximum or from the start."""
    points = run.series("train/reward")
    if len(points) < 6:
        return
    scale = reward_scale(run)
    began, ended = mean(first_third(points)), mean(last_third(points))
    best = max((mean(points[i : i + 3]) for i in range(len(points) - 2)), default=points[0].value)
    rate = run.experiment.train.learning_rate
    val = run.val_change
    if ended < began - DROP * scale and best < began + DROP * scale:
        yield Finding(
            name="moves_away",
            weight="serious",
            title="Training moves away from the reward",
            evidence=f"the train reward fell from {began:.2f} to {ended:.2f}, without ever rising"
            + (f"; held-out by {interval(val)}" if val else ""),
            reason="Either updates are far too large, or what is pushed up is the worse play: a "
            "reward with the wrong sign, or advantages of other trajectories.",
            change=f"the sign of score(); train.learning_rate: {rate / 10:.2g} (it is {rate:g})",
            certainty=0.85,
        )
    elif ended < best - 2 * DROP * scale:
        yield Finding(
            name="rate_too_high",
            weight="serious",
            title="The reward fell from its best",
            evidence=f"it was {best:.2f} at best and is {ended:.2f} in the last third",
            reason="Updates are too large to keep what was learned.",
            change=f"train.learning_rate: {rate / 3:.2g} (it is {rate:g})",
            certainty=0.85,
        )


def no_rise(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the reward does not rise although groups differ."""
    points = run.series("train/reward")
    taught = 1 - mean(run.ratio("data/groups_zero_variance", "data/groups"))
    if len(points) < 15 or not taught > 0.5:
        return
    began, ended = mean(first_third(points)), mean(last_third(points))
    val = run.val_change
    if ended - began < 0.02 * reward_scale(run) and (
        val is None or val.low <= 0 or val.value < 0.03
    ):
        rate = run.experiment.train.learning_rate
        change = train_change(run)
        # Serious if a rise of 0.1 can be excluded; otherwise a rise may be hidden by noise.
        excluded = change is None or change.high < DROP * reward_scale(run)
        yield Finding(
            name="no_rise",
            weight="serious" if excluded and (val is None or val.high < RISE) else "notable",
            title="There is signal, and the reward does not rise",
            evidence=f"{taught:.0%} of the groups differ; the train reward was {began:.2f} in the "
            f"first third of {run.steps} steps and {ended:.2f} in the last",
            reason="The reward is chance, or updates are too small, too large, or of other play.",
            change=f"train.learning_rate (it is {rate:g}); play one group again by hand and see "
            "whether the better play earns more",
            certainty=0.4,
        )


def memorised(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the train reward rises and the held-out reward does not.

    There is no finding within noise, nor with a judge, whose scores are only part of the train
    reward.
    """
    if run.experiment.judge:
        return
    points, val, gained = run.series("train/reward"), run.val_change, train_change(run)
    if len(points) < 6 or val is None or gained is None:
        return
    # Both changes have an interval, and so does their difference.
    error = math.hypot(gained.value - gained.low, val.value - val.low)
    is_more = gained.value - val.value > error and val.high < gained.value / 2
    if is_more and gained.low > DROP * reward_scale(run):
        yield Finding(
            name="memorised",
            weight="serious",
            title="What is learned does not hold on other scenarios",
            evidence=f"train rose by {interval(gained)}, held-out by {interval(val)}",
            reason="The train scenarios are learned by heart, or differ from the held-out ones.",
            change="more, and more various, train scenarios; fewer train.steps",
            certainty=0.85,
        )


def other_kind(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if held-out scenarios have other values in their data than train ones."""
    if not run.held_out:
        return
    train = {row["scenario_id"]: row["scenario"] or {} for row in run.rows}
    held = {row["scenario_id"]: row["scenario"] or {} for row in run.held_out[min(run.held_out)]}
    if min(len(train), len(held)) < ENOUGH:
        return
    of_train, of_held = (values_of(data.values()) for data in (train, held))
    for path in sorted(of_train.keys() | of_held.keys()):
        a, b = of_train.get(path, Counter()), of_held.get(path, Counter())
        if not 1 < len(a | b) <= KINDS:
            continue
        apart = sum(abs(a[v] / len(train) - b[v] / len(held)) for v in a | b) / 2
        # The total variation distance. Two draws of 32 from 10 kinds differ by at most 0.3 by
        # chance.
        if apart > 0.5:
            value = max(a | b, key=lambda v: abs(a[v] / len(train) - b[v] / len(held)))
            yield Finding(
                name="other_kind",
                weight="notable",
                title="Held-out scenarios are of another kind than those of training",
                evidence=f"{path} is {value} in {b[value] / len(held):.0%} of the held-out "
                f"scenarios, and in {a[value] / len(train):.0%} of those of training",
                reason="The held-out reward then says how well another task is played.",
                change="the env's scenarios(): splits that are drawn from one distribution",
                certainty=0.8,
            )
            return


def gap_from_start(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if train scenarios are played better than held-out ones before training."""
    if run.experiment.judge or not run.held_out or min(run.held_out) > 0:
        return  # a judge's scores are only part of the train reward
    # Over three steps: the first alone has too few groups for a mean, and no policy changes much in
    # three.
    first = [group for step in sorted(run.train) if step <= 3 for group in run.train[step]]
    train = estimate([statistics.fmean(r) for group in first if (r := rewards_of(group))])
    held = estimate(list(by_scenario(run.held_out[min(run.held_out)]).values()))
    if train is None or held is None:
        return
    gap = train.value - held.value
    error = math.hypot(train.value - train.low, held.value - held.low)
    rewards = [r for group in run.groups for r in rewards_of(group)]
    near_top = max(rewards, default=0.0) - NEAR_TOP * reward_scale(run)
    warmed_up = run.experiment.sft is not None
    # The interval has to lie beyond what splits of one task differ by, and what few scenarios hide.
    if gap - error > GAP * reward_scale(run):
        yield Finding(
            name="gap_from_start",
            weight="serious" if train.value > near_top else "notable",
            title="Train scenarios were played better before the first update",
            evidence=f"the reward of the first steps was {train.value:.2f}, and the held-out one "
            f"before them {held.value:.2f} (apart by {gap:.2f} +/- {error:.2f})",
            reason=("SFT learned them by heart, or they are" if warmed_up else "They are")
            + " easier, or scored or built otherwise. RL has not made this gap, and has little to "
            "learn from where they are solved.",
            change=("sft.epochs, other scenarios for demonstrations, or " if warmed_up else "")
            + "splits of one difficulty; score() for a train and a held-out scenario",
            certainty=0.9,
        )


def noisy_evaluation(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the evaluation is too noisy to detect a change."""
    val = run.val_change
    if val is None or run.steps < 10:
        return
    wanted = run.experiment.eval.episodes if run.experiment.eval else 0
    num = min(len(rows) for rows in run.held_out.values())
    more = "" if num >= wanted else f" (eval.episodes is {wanted})"
    if val.high - val.low > 0.2 * reward_scale(run) and not val.excludes_zero:
        yield Finding(
            name="noisy_evaluation",
            weight="notable",
            title="The evaluation is too small to show a change",
            evidence=f"the held-out reward changed by {interval(val)} over {num} episodes{more}",
            reason="A change smaller than the noise cannot be seen.",
            change="more scenarios of that split: it has fewer than eval.episodes"
            if more
            else f"eval.episodes: {4 * num} halves the noise",
        )


def train_is_held_out(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if held-out scenarios were trained on."""
    train = {scenario_of(row) for row in run.rows}
    held = {scenario_of(row) for rows in run.held_out.values() for row in rows}
    if len(held) < 8 or len(train) < 8:
        return
    both = len(held & train)
    share = both / len(held)
    # Disjoint splits have none in common. If a large train split contains all held-out scenarios,
    # only few of them occur in the steps that were read.
    if share > 0.1 or (both >= 3 and both / len(train) > 0.01):
        yield Finding(
            name="train_is_held_out",
            weight="serious",
            title="Held-out scenarios are trained on",
            evidence=f"{both} of {len(held)} held-out scenarios are among the {len(train)} train "
            "scenarios of the steps that were read",
            reason="The held-out reward then says nothing of other scenarios.",
            change="the env's scenarios(): splits that share none",
            certainty=0.95,
        )


def length_is_paid(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if longer siblings earn more, always or so often that turns grow longer."""
    lengths = run.series("train/tokens")
    correlations = [c for group in run.groups if (c := _length_correlation(group)) is not None]
    if len(correlations) < 20 or len(lengths) < 6:
        return
    grew = mean(last_third(lengths)) / max(1e-9, mean(first_third(lengths)))
    correlation = statistics.fmean(correlations)
    if correlation > 0.95 or (correlation > 0.7 and grew > 1.3):
        longest = max(run.late_groups[-1], key=lambda row: row["num_sampled"])
        yield Finding(
            name="length_is_paid",
            weight="serious",
            title="The reward is paid for length",
            evidence=f"within groups reward and length go together ({correlation:+.2f}), and "
            f"trajectories are {grew:.1f} times as long as at first",
            reason="The policy learns to say more, not to do better.",
            change="the env's score(), or the judge's rubric; art judge audit measures a judge",
            certainty=0.8,
            example=place(longest),
        )


def _length_correlation(group: list[Row]) -> float | None:
    """Return Pearson's correlation of reward and length, or None if one of them is constant."""
    pairs = [(row["reward"], row["num_sampled"]) for row in group if row["reward"] is not None]
    if len(pairs) < 4 or len({r for r, _ in pairs}) < 2 or len({n for _, n in pairs}) < 2:
        return None
    return statistics.correlation(*zip(*pairs, strict=True))


RULES = (
    falls,
    no_rise,
    memorised,
    other_kind,
    gap_from_start,
    noisy_evaluation,
    train_is_held_out,
    length_is_paid,
)
