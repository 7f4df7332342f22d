"""RULER from Python: OpenPipe's names and arguments."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from loopback_judge import LoopbackJudge, refused

import art_cli as art
from art_cli.errors import JudgeError, PreflightError


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def conversation(quality: float) -> list[art.Message]:
    return [
        {"role": "user", "content": "Do it well."},
        {"role": "assistant", "content": f"quality {quality}"},
    ]


def group() -> art.TrajectoryGroup:
    scenario = art.Scenario(id="train-0", split="train", seed=0)
    failed = art.Trajectory(scenario=scenario, error="the env failed")
    played = [
        art.Trajectory(
            scenario=scenario,
            messages=conversation(q),
            reward=1.0 - q,
            metrics={"turns_left": 3.0},
            logs=["opened"],
            policy_versions=[7],
        )
        for q in (0.2, 0.9)
    ]
    return art.TrajectoryGroup([*played, failed])


def test_message_lists_get_scores_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    async def go(params: dict[str, str]) -> list[art.TrajectoryScore]:
        lists = [conversation(q) for q in (0.3, 0.8, 0.1)]
        return await art.ruler(lists, "openai/loopback", params, tools=[{"n": 1}], debug=True)

    with LoopbackJudge() as judge:
        scores = asyncio.run(go({"api_base": judge.api_base}))
        assert judge.asked[0].document["tools"] == [{"n": 1}]
    assert [s.score for s in scores] == [0.3, 0.8, 0.1]
    assert all(s.explanation.startswith("because of") for s in scores)
    assert "RULER 1: 0.800  because of" in capsys.readouterr().out


def test_a_scored_group_keeps_all_but_the_reward() -> None:
    before = group()
    with LoopbackJudge() as judge:
        params = {"api_base": judge.api_base, "temperature": 0.4}
        after = asyncio.run(art.ruler_score_group(before, "openai/loopback", params))
        assert judge.asked[0].body["temperature"] == 0.4
    assert after
    assert [t.reward for t in after.trajectories] == [0.2, 0.9, None]
    first = after.trajectories[0]
    assert first.all_metrics == {"turns_left": 3.0, "env_reward": 0.8, "ruler_score": 0.2}
    assert first.logs == ["opened"] and "because of" in first.reward_parts.explanation
    assert first.policy_versions == [7]
    assert [t.reward for t in before.trajectories] == [0.8, pytest.approx(0.1), None]


def test_groups_are_scored_side_by_side() -> None:
    async def go(params: dict[str, str]) -> list[art.TrajectoryGroup | None]:
        jobs = [art.ruler_score_group(group(), "openai/x", params, f"{n}") for n in range(20)]
        return await asyncio.gather(*jobs)

    with LoopbackJudge(latency=0.05) as judge:
        found = asyncio.run(go({"api_base": judge.api_base}))
    assert all(g and g.trajectories[1].reward == 0.9 for g in found)


def test_a_failure_raises_or_gives_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackJudge(then=refused(400, "no")) as judge:
        params = {"api_base": judge.api_base}
        with pytest.raises(JudgeError, match="no"):
            asyncio.run(art.ruler_score_group(group(), "openai/x", params))
        job = art.ruler_score_group(group(), "openai/x", params, swallow_exceptions=True)
        assert asyncio.run(job) is None
    assert "the group is left out" in capsys.readouterr().err
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(PreflightError, match="OPENAI_API_KEY"):
        asyncio.run(art.ruler_score_group(group()))
