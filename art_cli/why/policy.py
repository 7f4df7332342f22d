"""Findings on the policy: its probabilities, its entropy, and the size of its updates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from art_cli.why.episodes import weight_of
from art_cli.why.evidence import Evidence, Row, first_third, last_third, mean, place, played
from art_cli.why.finding import Finding
from art_cli.why.tools import ILLEGAL

# Mean |log ratio| between engine and trainer on a batch that was sampled with the same weights. It
# is about 1e-6 in float32 and about 0.01 in bfloat16 with two different engines.
GAP = 0.03
# The share of updates that train.max_kl shortened. It was up to 0.62 in runs that learn (the game
# that `art init` creates).
SHORTENED = 0.8
# The share of held-out episodes that are token for token the same as before. In runs that learn it
# was 0.3 to 0.7 after 21 steps (scripts/bench/faults.py).
MOST = 0.8
# KL in nats per token of a run's longest update. Runs that learn had 4e-4 and more. With a
# hundredth of their learning rate it was 3e-8, and all episodes stayed the same
# (scripts/bench/faults.py).
SHORT = 1e-6
# At temperature T the odds of two tokens are those at 1 to the power 1 / T. At 1.2, a slip of 1%
# comes twice as often, in each token of a turn.
HOT = 1.2
SPOILT = 0.1  # of the trajectories; of runs that learn, up to 9% had an illegal action


def not_on_policy(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if trainer and engine disagree on the probabilities of sampled tokens."""
    if run.experiment.train.max_staleness:
        return
    gaps = run.series("loss/logprob_gap")
    if len(gaps) < 2 or not (gap := mean(last_third(gaps))) > GAP:
        return
    temperature = run.experiment.sampling.temperature
    yield Finding(
        name="not_on_policy",
        weight="serious",
        title="What is trained is not what was sampled",
        evidence=f"the log-probabilities of engine and trainer differ by {gap:.3f} a token "
        f"(at first {gaps[0].value:.3f}), and the ratio reaches {_last(run, 'loss/ratio_max'):.1f}",
        reason="With train.max_staleness: 0 both have the same weights, so the ratio should be 1. "
        "The engine has old weights, another template, other tokens or another temperature.",
        change="engine: the server's options against logs/engine-0.log; "
        f"sampling.temperature ({temperature}); art certify for the base",
        certainty=min(1.0, 0.7 + gap),
    )


def cut_distribution(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if top_p or top_k excludes tokens, because the update does not account for
    it.
    """
    top_p, top_k = run.experiment.sampling.top_p, run.experiment.sampling.top_k
    if top_p < 1 or top_k > 0:
        yield Finding(
            name="cut_distribution",
            weight="notable",
            title="Sampling leaves unlikely tokens out",
            evidence=f"sampling.top_p is {top_p}, sampling.top_k is {top_k}",
            reason="The update takes the policy for what all tokens say, so its ratio is biased.",
            change="sampling: {top_p: 1.0, top_k: 0}",
            certainty=0.7,
        )


def hot_sampling(run: Evidence) -> Iterator[Finding]:
    """Yield a finding where a high temperature comes with turns that cannot be read or played."""
    temperature = run.experiment.sampling.temperature
    rows = run.rows
    spoilt = [row for row in rows if _is_spoilt(row)]
    share = len(spoilt) / max(1, len(rows))
    if temperature <= HOT or share <= SPOILT:
        return
    points = run.series("loss/entropy")
    began = f"; entropy was {points[0].value:.2f} nats a token at first" if points else ""
    yield Finding(
        name="hot_sampling",
        weight=weight_of(share),
        title="The sampling temperature is too high",
        evidence=f"sampling.temperature is {temperature:g}, and {share:.0%} of the trajectories "
        f"were cut off, unreadable or illegal{began}",
        reason="A high temperature samples unlikely tokens far more often than the model means "
        "them, and one such token spoils a turn.",
        change=f"sampling.temperature: 1.0 (it is {temperature:g})",
        certainty=0.9,
        example=place(spoilt[-1]),
    )


def _is_spoilt(row: Row) -> bool:
    """Return whether a turn was cut off, a call could not be read, or the env calls it illegal."""
    calls = any(s["is_error"] and (s["tool"] == "" or s.get("is_unknown")) for s in row["steps"])
    return row["truncated"] or calls or any(row["metrics"].get(name, 0) > 0 for name in ILLEGAL)


def policy_stands_still(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if held-out episodes have the same tokens as before the first update."""
    if len(run.held_out) < 2 or run.steps < 5 or _is_cut_short(run):
        return
    first, last = (run.held_out[s] for s in (min(run.held_out), max(run.held_out)))
    before = {played(row): _tokens(row) for row in first}
    both = [row for row in last if played(row) in before]
    same = [row for row in both if _tokens(row) == before[played(row)]]
    if len(both) < 8:
        return
    share, val = len(same) / len(both), run.val_change
    is_learning = val is not None and val.low > 0
    has_signal = mean(run.ratio("data/groups_zero_variance", "data/groups")) < MOST
    evidence = (
        f"{len(same)} of {len(both)} held-out episodes went token by token as before the first "
        f"update, {max(run.held_out)} steps later"
    )
    norms, moves = run.series("loss/grad_norm"), run.series("loss/update_kl")
    rate = run.experiment.train.learning_rate
    longest = max((p.value for p in moves), default=0.0)
    if moves:
        evidence += f"; the longest update moved the policy by {longest:.1g} nats a token"
    if share == 1.0 and norms and mean(norms) > 1e-6 and not 0 < longest < SHORT:
        yield Finding(
            name="stale_weights",
            weight="serious",
            title="The policy that plays has not changed",
            evidence=evidence,
            reason="Updates do not reach the engine, or are too small to change a token.",
            change=f"train.learning_rate (it is {rate:g}); with engine.url, whether that server "
            "takes adapters",
            certainty=1.0,
            example=place(same[0]),
        )
    elif share > MOST and has_signal and not is_learning and not _is_good(run):
        yield Finding(
            name="rate_too_low",
            weight="serious",
            title="The policy hardly changes",
            evidence=evidence,
            reason="The updates are too small for the steps that there are.",
            change=f"train.learning_rate: {10 * rate:.2g} (it is {rate:g}), or more train.steps",
            certainty=0.6 + share / 3,
            example=place(same[0]),
        )


def entropy(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if entropy vanished at a low reward, or if it keeps rising."""
    points = run.series("loss/entropy")
    if len(points) < 6:
        return
    began, ended = mean(first_third(points)), mean(last_third(points))
    rate = run.experiment.train.learning_rate
    falls = mean(last_third(run.series("train/reward"))) < mean(
        first_third(run.series("train/reward"))
    )
    if ended < 0.01 and not _is_good(run):
        early = points[0].value < 0.02
        yield Finding(
            name="no_exploration" if early else "entropy_collapse",
            weight="serious",
            title="The policy explores nothing"
            if early
            else "The policy stopped exploring before the task was learned",
            evidence=f"entropy was {points[0].value:.3f} at first and is {ended:.4f}",
            reason="Siblings that all do the same cannot be compared.",
            change="fewer sft.epochs, or sampling.temperature: 1.0"
            if early
            else f"train.learning_rate: {rate / 3:.2g}, or train.clip_high: 0.28",
            certainty=0.75,
        )
    elif ended > 2 * began and ended > 0.3 and falls:
        yield Finding(
            name="entropy_explodes",
            weight="serious",
            title="The policy becomes noise",
            evidence=f"entropy rose from {began:.2f} to {ended:.2f} while the reward fell",
            reason="Updates are too large, or push away from what was sampled.",
            change=f"train.learning_rate: {rate / 10:.2g} (it is {rate:g})",
            certainty=0.8,
        )


def gradients(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if gradients vanish, or if metrics are not finite."""
    broken = [
        (row.get("training_step"), name)
        for row in run.metrics
        for name, value in row.items()
        if name.startswith("loss/")
        and (value is None or (isinstance(value, float) and not math.isfinite(value)))
    ]
    if broken:
        yield Finding(
            name="not_finite",
            weight="serious",
            title="The update computed something that is no number",
            evidence=f"{broken[0][1]} at step {broken[0][0]}",
            reason="Weights that are no numbers stay so.",
            change="--resume --from-step before it, with a lower train.learning_rate",
            certainty=1.0,
        )
    norms = run.series("loss/grad_norm")
    flat = {p.step for p in run.ratio("data/groups_zero_variance", "data/groups") if p.value == 1}
    taught = [p for p in norms if p.step not in flat]
    if len(taught) >= 5 and mean(taught) < 1e-7:
        yield Finding(
            name="no_gradient",
            weight="serious",
            title="The gradient is nothing, though groups differ",
            evidence=f"its length is {mean(taught):.1e} on average",
            reason="No trained token of these groups depends on a trained weight.",
            change="model.adapter.target_modules, or an own loss",
            certainty=0.95,
        )


def updates_too_long(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if train.max_kl shortens most updates."""
    if not _is_cut_short(run):
        return
    share, distance = mean(run.series("loss/shortened")), mean(run.series("loss/update_kl"))
    train = run.experiment.train
    assert train.max_kl
    # The KL is quadratic in the step size.
    rate = train.learning_rate * min(1 / 3, math.sqrt(train.max_kl / distance))
    val = run.val_change
    yield Finding(
        name="updates_too_long",
        # A run that learns anyway wastes part of its updates.
        weight="notable" if val is not None and val.low > 0 else "serious",
        title="Most updates would move the policy further than they may",
        evidence=f"{share:.0%} of the updates were shortened; whole, the longest of a step would "
        f"have gone {distance:.2g} nats a token, and train.max_kl is {train.max_kl}",
        reason="How long a step is that is halved again and again is left to chance, and one that "
        "is still too long after six times is not taken at all.",
        change=f"train.learning_rate: {rate:.2g} (it is {train.learning_rate:g})",
        certainty=0.5 + share / 4,
    )


def masks(run: Evidence) -> Iterator[Finding]:
    """Yield a finding if trained sampled tokens lack a log-probability, or others have one."""
    trained = without = astray = 0
    for row in run.rows[:512]:
        for sequence in row["sequences"]:
            for is_sampled, logprob in zip(
                sequence["mask"], sequence["engine_logprobs"], strict=False
            ):
                trained += is_sampled
                without += bool(is_sampled) and logprob == 0.0
                astray += not is_sampled and logprob != 0.0
    if trained and (without + astray) / trained > 0.05 and astray:
        yield Finding(
            name="mask_shifted",
            weight="serious",
            title="The mask does not lie on what was sampled",
            evidence=f"of {trained} tokens that are trained on {without} were not sampled, and "
            f"{astray} that were sampled are left out",
            reason="The update makes the user's words likelier, and not the policy's own.",
            change="whoever makes the sequences: mask is 1 on sampled tokens, and there alone",
            certainty=1.0,
        )


def _is_cut_short(run: Evidence) -> bool:
    shortened = run.series("loss/shortened")
    return len(shortened) >= 5 and mean(shortened) > SHORTENED


def _tokens(row: Row) -> list[list[int]]:
    return [sequence["ids"] for sequence in row["sequences"]]


def _is_good(run: Evidence) -> bool:
    return mean(last_third(run.series("train/reward"))) > 0.85


def _last(run: Evidence, name: str) -> float:
    points = run.series(name)
    return points[-1].value if points else math.nan


RULES = (
    not_on_policy,
    cut_distribution,
    hot_sampling,
    policy_stands_still,
    entropy,
    gradients,
    updates_too_long,
    masks,
)
