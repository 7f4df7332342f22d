"""Findings on groups: do siblings differ, and are there enough of them?"""

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

FLAT = 0.7  # of the groups without a gradient
ENOUGH = 50  # groups: a share of them is known to a seventh
NEAR = 0.05  # rewards, of the scale from the lowest to the highest seen
ALIKE = 0.1  # rewards, of that scale: nearly the same
UNPAID = 0.2  # of the groups: half of the scenarios of the order desk without a reward gave 0.55
SMALL = 4  # siblings: with fewer, a quarter of the groups and more has no gradient by chance alone


def no_signal(run: Evidence) -> Iterator[Finding]:
    """All siblings alike: nothing is ever right, or everything is."""
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
    """All siblings say the same, word for word, though there is something to learn."""
    groups = [g for g in run.late_groups if len(g) > 1]
    same = [g for g in groups if len({conduct_of(row) for row in g}) == 1]
    rewards = [r for g in run.groups for r in rewards_of(g)]
    if not groups or not rewards or len(same) / len(groups) <= FLAT:
        return
    late = statistics.fmean(r for g in groups for r in rewards_of(g) or [0.0])
    if late > max(rewards) - 2 * ALIKE * reward_scale(run):
        return  # it has learned what to say
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
    """A part of the scenarios never pays, and the others often do."""
    groups = [r for g in run.groups if len(r := rewards_of(g)) > 2]
    if len(groups) < ENOUGH:
        return
    scale, low = reward_scale(run), min(min(rewards) for rewards in groups)
    near = low + ALIKE * scale
    unpaid = [rewards for rewards in groups if max(rewards) <= near]
    paid = [r for rewards in groups if max(rewards) > near for r in rewards]
    # If each group could pay, siblings that fail with the others' rate would rarely all fail: of 8
    # that succeed 2 times in 5, one group in 60.
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
    """Return whether the task was less hard once: then it is not its difficulty."""
    return max((p.value for p in run.series("train/reward")), default=reward) > reward + 0.2


def small_groups(run: Evidence) -> Iterator[Finding]:
    """A group has too few siblings to be compared."""
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
