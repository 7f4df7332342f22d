"""Findings on the update: advantages, trained turns, KL penalty, batch size and staleness."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from art_cli.training.algorithm.advantage import ADVANTAGES
from art_cli.why.evidence import Evidence, Row, last_third, mean, place, reward_scale
from art_cli.why.finding import Finding

SOME = 0.05  # share of the groups or turns
HARDLY = 0.1  # a rise too small to be worth a run, relative to the range of rewards
OLD = 8  # updates between sampling and training; asynchronous trainers stay below it
FEW_GROUPS = 2  # groups with a gradient in an update


def wrong_advantages(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where advantages order siblings otherwise than their rewards do.

    With one of art's own advantages, a tie of siblings with different rewards counts as wrong.
    With a function of the user's own, ties may be meant, unless there is nothing else.
    """
    pairs = wrong = ties = 0
    example = ""
    for group in run.groups:
        rows = [r for r in group if r["reward"] is not None and r.get("advantage") is not None]
        for i, a in enumerate(rows):
            for b in rows[i + 1 :]:
                if abs(a["reward"] - b["reward"]) > 1e-6:
                    pairs += 1
                    order = (a["reward"] - b["reward"]) * (a["advantage"] - b["advantage"])
                    ties += order == 0
                    if order < 0 or (order == 0 and run.experiment.train.advantage in ADVANTAGES):
                        wrong, example = wrong + 1, example or place(a)
    if pairs and ties == pairs and not wrong:
        yield Finding(
            name="wrong_advantages",
            weight="notable",
            title="Advantages are equal whatever is earned",
            evidence=f"all {pairs} pairs of siblings with different rewards have equal advantages",
            reason="An update that compares siblings then learns nothing from their rewards.",
            change=f"train.advantage: {run.experiment.train.advantage} should give the sibling "
            "that earned more the greater advantage",
            certainty=0.9,
        )
    if pairs and wrong / pairs > 0.01:
        yield Finding(
            name="wrong_advantages",
            weight="serious",
            title="Advantages do not follow rewards",
            evidence=f"{wrong} of {pairs} pairs of siblings with different rewards have advantages "
            "in another order",
            reason="What is pushed up is not what earned more.",
            change="the code that computes advantages: a wrong sign, or those of another group",
            certainty=1.0,
            example=example,
        )


def other_baseline(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if the advantages of a group do not sum to 0.

    Each of art's own advantages subtracts the mean of the group. There is no finding for a user's
    own function, nor for groups in which an advantage is missing.
    """
    kind = run.experiment.train.advantage
    if kind not in ADVANTAGES:
        return
    sums: list[float] = []
    example = ""
    for group in run.groups:
        rows = [row for row in group if row["reward"] is not None]
        advantages = [row.get("advantage") for row in rows]
        if len(rows) < 2 or None in advantages:
            continue
        size = max(abs(a) for a in advantages if a is not None)
        sums.append(statistics.fmean(a for a in advantages if a is not None))
        if abs(sums[-1]) > 0.01 * max(size, 1e-9):
            example = example or place(rows[0])
        else:
            sums[-1] = 0.0
    off = [s for s in sums if s]
    if sums and len(off) / len(sums) > SOME:
        yield Finding(
            name="other_baseline",
            weight="serious",
            title="Advantages are not measured against siblings",
            evidence=f"in {len(off)} of {len(sums)} groups the mean advantage is not 0, but "
            f"{statistics.fmean(map(abs, off)):.2g} up or down; train.advantage is {kind}, which "
            "subtracts the mean of the group",
            reason="Whole groups are pushed up or down because their scenario is easy or hard.",
            change="the code that computes advantages: subtract the mean reward of the group, not "
            "of the batch",
            certainty=0.98,
            example=example,
        )


def untrained_turns(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if turns were sampled without any trained token.

    A run of 1s in a mask is a trained turn, and each sampled turn has a policy version. There is no
    finding for turns that are left out on purpose: by `agent.train`, because the episode was cut
    off, because nobody received the answer, or because a grammar left the policy no choice.
    """
    if run.experiment.agent.train != "all":
        return
    rows = [r for r in run.rows if r["reward"] is not None and not r["truncated"]]
    rows = [r for r in rows if not r["metrics"].get("answers_unheard")]
    rows = [r for r in rows if not any(s.get("constrained") for s in r["sequences"])]
    counted = [(r, len(r.get("policy_versions") or ()), _trained_turns(r)) for r in rows]
    sampled = sum(num for _, num, _ in counted)
    missing = [(row, num, trained) for row, num, trained in counted if trained < num]
    lost = sum(num - trained for _, num, trained in missing)
    if sampled and lost / sampled > SOME:
        last = sum(bool(_ends_trained(row)) for row, _, _ in missing)
        which = "; the last turn is always trained" if last == len(missing) else ""
        yield Finding(
            name="untrained_turns",
            weight="serious",
            title="Part of what the policy says is never trained",
            evidence=f"no token of {lost} of {sampled} sampled turns has a mask of 1{which}",
            reason="What is decided in these turns is not learned from.",
            change="the code that makes sequences: mask is 1 on the tokens of every sampled turn",
            certainty=0.98,
            example=place(missing[-1][0]),
        )


def _trained_turns(row: Row) -> int:
    return sum(
        bool(now) and not (i and sequence["mask"][i - 1])
        for sequence in row["sequences"]
        for i, now in enumerate(sequence["mask"])
    )


def _ends_trained(row: Row) -> bool:
    """Return whether the sequence ends with a trained turn, ignoring the end-of-turn tokens."""
    mask = row["sequences"][-1]["mask"] if row["sequences"] else []
    return any(mask[-4:])


def held_by_penalty(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if `train.kl_coef` allows hardly any rise of the reward.

    The best policy under a reward of span s and a penalty of b nats earns at most s^2 / (4 b) more
    than the reference: the mean of an exponentially tilted reward rises by its variance, which is
    at most s^2 / 4. Advantages divided by a standard deviation scale the penalty by it.
    """
    train, scale = run.experiment.train, reward_scale(run)
    price = train.kl_coef
    if train.advantage in ("group_std", "batch_std"):
        price *= mean(run.series("train/reward_std"))
    if not (run.steps and price > 0 and train.advantage in ADVANTAGES):
        return
    most = scale**2 / (4 * price)
    if most < HARDLY * scale:
        distance = last_third(run.series("loss/kl"))
        stays = f"; lately it stays within {mean(distance):.1g} nats a token" if distance else ""
        yield Finding(
            name="held_by_penalty",
            weight="serious",
            title="The KL penalty holds the policy where it began",
            evidence=f"with train.kl_coef {train.kl_coef:g}, and rewards that span {scale:.2g}, no "
            f"policy can gain more than {most:.2g} before the penalty costs more{stays}",
            reason="What a rise of the reward earns, the distance from the reference costs.",
            change=f"train.kl_coef: 0, or {scale / 100:.1g} (it is {train.kl_coef:g})",
            certainty=0.97,
        )


def stale_rollouts(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if updates train on samples of a policy many updates old."""
    age = mean(last_third(run.series("data/staleness")))
    if not age > OLD:
        return
    most = run.experiment.train.max_staleness
    yield Finding(
        name="stale_rollouts",
        weight="notable",
        title="Updates learn from rollouts of an old policy",
        evidence=f"what is trained on was sampled {age:.1f} updates before, lately; the run has "
        f"{run.steps}, and its first {most + 1} batches are of the untrained policy",
        reason="The ratio is clipped where the policy has moved on, and what was learned last "
        "shows in no rollout yet.",
        change=f"train.max_staleness: 1 (it is {most})",
        certainty=0.8,
    )


def small_batches(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if updates have few groups with a gradient because they have few groups.

    There is no finding if many groups are played and most are alike, which is another fault.
    """
    groups, flat = run.series("data/groups"), run.series("data/groups_zero_variance")
    per_step = run.experiment.train.scenarios_per_step
    if len(groups) < 5 or per_step > FEW_GROUPS or not flat:
        return
    taught = mean(groups) - mean(flat)
    if taught >= FEW_GROUPS:
        return
    idle = sum(p.value >= 1 for p in run.ratio("data/groups_zero_variance", "data/groups"))
    none = f", and {idle} of {len(groups)} steps have none" if idle else ""
    yield Finding(
        name="small_batches",
        weight="notable",
        title="An update sees too few scenarios",
        evidence=f"{mean(run.series('data/trajectories')):.0f} trajectories a step; {taught:.1f} "
        f"groups of a step have a gradient on average{none}",
        reason="The direction of such an update is that of one scenario, and mostly noise.",
        change=f"train.scenarios_per_step: 8 or more (it is {per_step})",
        certainty=0.85,
    )


RULES = (
    wrong_advantages,
    other_baseline,
    untrained_turns,
    held_by_penalty,
    stale_rollouts,
    small_batches,
)
