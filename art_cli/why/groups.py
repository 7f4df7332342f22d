"""Findings on groups: identical siblings, unsolvable scenarios, too small groups."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from art_cli.why.evidence import (
    Evidence,
    conduct_of,
    last_third,
    mean,
    place,
    reward_scale,
    rewards_of,
)
from art_cli.why.finding import Finding

FLAT = 0.7  # share of groups without a gradient
ENOUGH = 50  # groups: enough to estimate a share within a seventh
NEAR = 0.05  # distance of rewards, relative to the range of all rewards
ALIKE = 0.1  # distance of nearly equal rewards, relative to that range
UNPAID = 0.2  # share of groups; with half of the order desk's scenarios unpaid it was 0.55
SMALL = 4  # siblings: in smaller groups, a quarter or more have no gradient by chance alone


def no_signal(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if all siblings earn the same, because all succeed or all fail."""
    flat = mean(last_third(run.ratio("data/groups_zero_variance", "data/groups")))
    rewards = [r for group in run.late_groups for r in rewards_of(group)]
    if not flat > FLAT or not rewards:
        return
    low, high = min(rewards), max(rewards)
    reward = statistics.fmean(rewards)
    level = (reward - low) / (high - low) if high > low else None
    evidence = f"{flat:.0%} of the last groups have no gradient; their mean reward is {reward:.2f}"
    is_solved = reward > 0.8 and (level is None or level > 0.8)
    if is_solved:
        yield Finding(
            name="solved",
            weight="notable",
            title="Nearly every episode succeeds: little is left to learn",
            evidence=evidence,
            reason="Siblings that all earn the most teach nothing more.",
            change="a harder level in env.args, or fewer train.steps",
        )
    elif (level is None or level < 2 * NEAR) and not _was_better(run, reward):
        yield Finding(
            name="too_hard",
            weight="serious",
            title="Nearly every episode fails alike: there is nothing to learn from",
            evidence=evidence,
            reason="An update compares siblings, and these all earn the same.",
            change="partial credit in the env's score(), an easier level in env.args, a longer "
            "sft, or a larger train.group_size",
            certainty=0.8,
        )


def copies(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if siblings write identical turns although there is something to learn."""
    groups = [g for g in run.late_groups if len(g) > 1]
    same = [g for g in groups if len({conduct_of(row) for row in g}) == 1]
    rewards = [r for g in run.groups for r in rewards_of(g)]
    if not groups or not rewards or len(same) / len(groups) <= FLAT:
        return
    late = statistics.fmean(r for g in groups for r in rewards_of(g) or [0.0])
    if late > max(rewards) - 2 * ALIKE * reward_scale(run):
        return  # the policy has learned what to write
    yield Finding(
        name="siblings_are_copies",
        weight="serious",
        title="Siblings are copies of each other",
        evidence=f"in {len(same)} of the last {len(groups)} groups all say the same, word for word",
        reason="An update compares siblings: these differ in nothing.",
        change=f"sampling.temperature (it is {run.experiment.sampling.temperature}); with a server "
        "of your own, whether it samples with one seed or from a cache of answers",
        certainty=0.8,
        example=place(same[-1][0]),
    )


def unsolvable(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if a part of the scenarios never pays while the others often do."""
    groups = [r for g in run.groups if len(r := rewards_of(g)) > 2]
    if len(groups) < ENOUGH:
        return
    scale, low = reward_scale(run), min(min(rewards) for rewards in groups)
    near = low + ALIKE * scale
    unpaid = [rewards for rewards in groups if max(rewards) <= near]
    paid = [r for rewards in groups if max(rewards) > near for r in rewards]
    # If each group could pay, siblings with the other groups' failure rate would rarely all fail:
    # at a success rate of 2 in 5, all 8 fail in one group of 60.
    if len(unpaid) / len(groups) > UNPAID and paid and statistics.fmean(paid) > low + 0.4 * scale:
        yield Finding(
            name="unsolvable_scenarios",
            weight="notable",
            title="A part of the scenarios never pays",
            evidence=f"in {len(unpaid)} of {len(groups)} groups all siblings earned the least, and "
            f"in the others {statistics.fmean(paid):.2f} on average",
            reason="These groups cost as much as others and teach nothing. Perhaps they cannot be "
            "solved.",
            change="the env: play such a scenario by hand; train.dynamic_sampling: true, or a "
            "curriculum",
            certainty=0.65,
            example=next(place(g[0]) for g in run.groups if rewards_of(g) in unpaid),
        )


def _was_better(run: Evidence, reward: float) -> bool:
    """Return whether the train reward was higher before, so that difficulty is not the cause."""
    return max((p.value for p in run.series("train/reward")), default=reward) > reward + 0.2


def small_groups(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if groups have too few siblings for a comparison."""
    size = run.experiment.train.group_size
    if size < SMALL and run.groups:
        flat = mean(run.ratio("data/groups_zero_variance", "data/groups"))
        lost = f"; {flat:.0%} of the groups have no gradient" if flat > 0 else ""
        yield Finding(
            name="small_groups",
            weight="notable",
            title="Groups are too small to compare",
            evidence=f"train.group_size is {size}{lost}",
            reason="Where episodes succeed half of the time, half of the groups of 2 have no "
            "gradient, a quarter of those of 3, and 1% of those of 8. The mean of so few rewards "
            "is noise, too, and goes into each advantage.",
            change="train.group_size: 8, with fewer train.scenarios_per_step",
            certainty=0.6,
        )


RULES = (no_signal, copies, unsolvable, small_groups)
