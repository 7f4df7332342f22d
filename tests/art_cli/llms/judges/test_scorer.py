"""From scores to rewards: weights, the gate, failures, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import BudgetError, EnvError, JudgeError
from art_cli.llms.base import Usage
from art_cli.llms.judges.base import Score, Transcript, Verdict
from art_cli.llms.judges.scorer import Scorer, first_gains, tie_rate, transcript
from art_cli.reward import set_reward
from art_cli.types import Message, RewardParts, Scenario, Trajectory, TrajectoryGroup

SCENARIO = Scenario(id="train-0", split="train", seed=0)


def verdict(*scores: float, **more: Any) -> Verdict:
    return Verdict(scores=[Score(score=s, explanation=f"it is {s}") for s in scores], **more)


class Given:
    """A judge whose verdicts are known before."""

    spent = 0.25

    def __init__(self, *verdicts: Verdict | Exception) -> None:
        self.usage = Usage(calls=4, cached=2, retries=1, seconds=2.0)
        self.seen: list[Sequence[Transcript]] = []
        self._verdicts = list(verdicts)

    async def judge(self, transcripts: Sequence[Transcript]) -> Verdict:
        self.seen.append(transcripts)
        found = self._verdicts.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def close(self) -> None: ...


def group(*rewards: float | None) -> TrajectoryGroup:
    played = [Trajectory(scenario=SCENARIO, reward_parts=RewardParts(env=r)) for r in rewards]
    for t in played:
        set_reward(t, None)
    return TrajectoryGroup(played)


def scored(
    by: Given, /, *groups: TrajectoryGroup, on_failure: str = "drop", **reward: Any
) -> Scorer:
    scorer = Scorer(by, RewardConfig(**reward) if reward else None, on_failure)

    async def go() -> None:
        for g in groups:
            await scorer(g)

    asyncio.run(go())
    return scorer


# ---------------------------------------------------------------- combinations


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, [0.2, 0.8, 0.6, 0.4]),
        ({"judge": 1.0}, [0.2, 0.8, 0.6, 0.4]),
        ({"judge": 0.5}, [0.1, 0.4, 0.3, 0.2]),
        ({"env": 1.0, "judge": 0.5}, [1.1, 0.4, -0.7, 0.7]),
        ({"env": 1.0, "judge": 0.5, "gate": "env"}, [1.1, 0.0, -1.0, 0.7]),
        ({"env": 0.0, "judge": 2.0, "gate": "env"}, [0.4, 0.0, 0.0, 0.8]),
        ({"env": 3.0, "judge": 1.0}, [3.2, 0.8, -2.4, 1.9]),
    ],
)
def test_rewards_are_weighted_sums_and_the_gate_needs_the_envs_approval(
    reward: dict[str, Any], expected: list[float]
) -> None:
    played = group(1.0, 0.0, -1.0, 0.5)
    scored(Given(verdict(0.2, 0.8, 0.6, 0.4)), played, **reward)
    assert played.rewards == pytest.approx(expected)


def test_the_envs_own_score_the_judges_and_its_reasons_stay_with_the_trajectory() -> None:
    played = group(1.0, 0.0)
    played.trajectories[0].metrics["turns"] = 3.0
    scored(Given(verdict(0.2, 0.8)), played)
    first = played.trajectories[0]
    assert first.all_metrics == {"turns": 3.0, "env_reward": 1.0, "ruler_score": 0.2}
    assert first.reward_parts == RewardParts(env=1.0, judge=0.2, explanation="it is 0.2")


def test_an_env_without_a_score_needs_only_the_judge() -> None:
    played = group(None, None)
    scored(Given(verdict(0.2, 0.8)), played)
    assert played.rewards == [0.2, 0.8]
    assert played.trajectories[0].all_metrics == {"ruler_score": 0.2}


@pytest.mark.parametrize(
    ("reward", "key"),
    [({"env": 1.0, "judge": 1.0}, "reward.env"), ({"judge": 1.0, "gate": "env"}, "reward.gate")],
)
def test_a_weight_or_a_gate_needs_the_envs_score(reward: dict[str, Any], key: str) -> None:
    with pytest.raises(EnvError, match=rf"{key} needs the env's own score, but score\(\) gave"):
        scored(Given(verdict(0.2, 0.8)), group(1.0, None), **reward)


def test_the_judge_sees_messages_tools_and_what_really_happened() -> None:
    message: Message = {"role": "user", "content": "hello"}
    trajectory = Trajectory(
        scenario=SCENARIO, messages=[message], tools=[{"name": "look"}], judge_context="nothing"
    )
    found = transcript(trajectory)
    assert (found.messages, found.tools, found.context) == (
        [message],
        [{"name": "look"}],
        "nothing",
    )


# ---------------------------------------------------------------- failures


def test_trajectories_that_failed_are_not_shown_and_get_no_reward() -> None:
    judge, played = Given(verdict(0.2, 0.8)), group(1.0, None, 0.0)
    played.trajectories[1].error = "the env broke"
    scored(judge, played)
    assert [t.reward for t in played.trajectories] == [0.2, None, 0.8]
    assert len(judge.seen[0]) == 2 and played.trajectories[1].error == "the env broke"


def test_a_group_that_could_not_be_judged_has_no_rewards_rather_than_zeros() -> None:
    judge = Given(JudgeError("twice wrong"), verdict(0.2, 0.8))
    failed, good = group(1.0, 0.0), group(1.0, 0.0)
    scorer = scored(judge, failed, good)
    assert failed.rewards == [] and good.rewards == [0.2, 0.8]
    assert [t.error for t in failed.trajectories] == ["the judge failed: twice wrong"] * 2
    assert [t.reward_parts.env for t in failed.trajectories] == [1.0, 0.0]
    assert scorer.take_metrics()["judge/failures"] == 1


def test_with_env_the_envs_own_score_stands_in() -> None:
    failed, unscored = group(1.0, 0.0), group(None, None)
    judge = Given(JudgeError("twice wrong"), JudgeError("twice wrong"))
    scorer = scored(judge, failed, unscored, on_failure="env", judge=1.0)
    assert failed.rewards == [1.0, 0.0] and unscored.rewards == []
    assert scorer.take_metrics()["judge/failures"] == 2  # and no JudgeError: there are rewards


def test_with_stop_the_first_failure_ends_it() -> None:
    with pytest.raises(JudgeError, match="twice wrong"):
        scored(Given(JudgeError("twice wrong")), group(1.0, 0.0), on_failure="stop")


def test_if_all_groups_failed_it_ends_with_the_last_reason() -> None:
    judge = Given(JudgeError("wrong"), JudgeError("wrong again"))
    scorer = scored(judge, group(1.0, 0.0), group(1.0, 0.0))
    with pytest.raises(JudgeError, match="failed at all 2 groups, the last with: wrong again"):
        scorer.take_metrics()


@pytest.mark.parametrize("on_failure", ["drop", "env", "stop"])
def test_spent_money_is_never_a_failure_of_the_judge(on_failure: str) -> None:
    with pytest.raises(BudgetError):
        scored(Given(BudgetError("spent")), group(1.0, 0.0), on_failure=on_failure)


# ---------------------------------------------------------------- metrics


def test_what_is_counted_is_of_the_groups_since_the_last_time() -> None:
    verdicts = (
        verdict(0.2, 0.8, votes=[[0.1, 0.8], [0.3, 0.8]]),
        verdict(0.5, 0.5, 1.0, votes=[[0.5, 0.5, 1.0]]),
    )
    scorer = scored(Given(*verdicts), group(1.0, 0.0), group(1.0, 0.0, 0.0))
    assert scorer.take_metrics() == pytest.approx(
        {
            "judge/calls": 4,
            "judge/cached": 2,
            "judge/retries": 1,
            "judge/failures": 0,
            "judge/latency_s": 0.5,
            "judge/score_mean": 0.6,
            "judge/spread": 0.025,
            "judge/tie_rate": 0.25,
            "costs/judge_usd": 0.25,
        }
    )
    again = scorer.take_metrics()
    assert again["judge/calls"] == 0 and again["costs/judge_usd"] == 0.25
    assert "judge/score_mean" not in again and "judge/latency_s" not in again


def test_what_the_first_listed_gains_is_counted_vote_by_vote() -> None:
    votes, orders = [[0.2, 0.8, 0.5], [0.9, 0.1, 0.3]], [[1, 0, 2], [0, 2, 1]]
    found = Verdict(scores=[], votes=votes, orders=orders)
    assert list(first_gains([found])) == pytest.approx([0.8 - 0.35, 0.9 - 0.2])
    assert list(first_gains([verdict(0.5, 0.6), Verdict(scores=[], votes=[[1.0]])])) == []


def test_ties_are_counted_among_siblings_only() -> None:
    assert tie_rate([verdict(0.5, 0.5), verdict(0.5, 0.6)]) == 0.5
    assert tie_rate([verdict(0.5), verdict()]) == tie_rate([]) == 0.0
