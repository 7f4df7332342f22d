"""Sets rewards from a judge's scores, group by group."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from typing import Any

from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import JudgeError
from art_cli.keys import mask_keys, mask_keys_in
from art_cli.llms.judges.base import Judge, Transcript, Verdict
from art_cli.reward import set_reward
from art_cli.types import Trajectory, TrajectoryGroup

SAME = 1e-6  # scores that differ by less are a tie


def transcript(trajectory: Trajectory) -> Transcript:
    """Return the part of a trajectory that a judge sees, with keys masked."""
    return Transcript(
        messages=mask_keys_in(list(trajectory.messages)),
        tools=mask_keys_in(trajectory.tools),
        context=mask_keys(trajectory.judge_context),
    )


def stored_transcript(row: dict[str, Any], tools: list[Any]) -> Transcript:
    """Return the part of a trajectory file's row that a judge sees. `tools` are the env's."""
    return Transcript(
        messages=mask_keys_in(row["messages"]),  # older versions stored them unmasked
        tools=mask_keys_in(tools),
        context=mask_keys(row["judge_context"]),
    )


class Scorer:
    """Sets the rewards of groups, and counts judged and failed groups."""

    def __init__(self, judge: Judge, weights: RewardConfig | None, on_failure: str) -> None:
        """Without `weights`, the reward is the judge's score alone."""
        self.judge = judge
        self._weights = weights
        self._on_failure = on_failure
        self._num_groups = 0
        self._verdicts: list[Verdict] = []
        self._failures: list[str] = []

    async def __call__(self, group: TrajectoryGroup) -> None:
        """Judge one group, and set its rewards.

        If the judge fails, `on_failure` decides: "drop" removes the rewards, so the group leaves
        the batch; "env" keeps the env's rewards; "stop" raises JudgeError. Raises BudgetError if
        the budget is used up.
        """
        judged = [t for t in group.trajectories if not t.failed]
        self._num_groups += 1
        try:
            verdict = await self.judge.judge([transcript(t) for t in judged])
        except JudgeError as e:
            if self._on_failure == "stop":
                raise
            self._failures.append(str(e))
            for t in judged:
                if self._on_failure == "drop" or t.reward is None:
                    t.reward, t.error = None, f"the judge failed: {e}"
                else:
                    t.reward_parts.explanation = f"the judge failed, the env's reward is used: {e}"
            return
        self._verdicts.append(verdict)
        for t, score in zip(judged, verdict.scores, strict=True):
            t.reward_parts.judge, t.reward_parts.explanation = score.score, score.explanation
            set_reward(t, self._weights)

    def take_metrics(self) -> dict[str, float]:
        """Return `judge/*` of the groups since the last call.

        Raises JudgeError if the judge failed on all of them, because continuing would pay for
        rollouts without any training.
        """
        usage = self.judge.usage.take()
        scores = [s.score for v in self._verdicts for s in v.scores]
        num, failures = self._num_groups, self._failures
        out = {
            "judge/calls": usage.calls,
            "judge/cached": usage.cached,
            "judge/retries": usage.retries,
            "judge/failures": len(failures),
            "costs/judge_usd": self.judge.spent,
        }
        if usage.calls:
            out["judge/latency_s"] = usage.seconds / usage.calls
        if scores:
            out["judge/score_mean"] = statistics.fmean(scores)
            out["judge/spread"] = statistics.fmean(v.spread for v in self._verdicts)
            out["judge/tie_rate"] = tie_rate(self._verdicts)
        if gains := list(first_gains(self._verdicts)):
            out["judge/first_gain"] = statistics.fmean(gains)
        self._num_groups, self._verdicts, self._failures = 0, [], []
        if num and len(failures) == num and self._on_failure == "drop":
            raise JudgeError(f"the judge failed at all {num} groups, the last with: {failures[-1]}")
        return out


def first_gains(verdicts: list[Verdict]) -> Iterator[float]:
    """Yield, for each vote, the first-listed score minus the mean of the others.

    Orders are random, so the mean is 0 if the order does not matter. A verdict may lack orders.
    """
    for verdict in verdicts:
        for vote, order in zip(verdict.votes, verdict.orders, strict=False):
            if len(order) > 1:
                yield vote[order[0]] - statistics.fmean(vote[n] for n in order[1:])


def tie_rate(verdicts: list[Verdict]) -> float:
    """Return the share of pairs of siblings with the same score."""
    pairs = [
        abs(a.score - b.score) < SAME
        for v in verdicts
        for a, b in itertools.combinations(v.scores, 2)
    ]
    return statistics.fmean(pairs) if pairs else 0.0
