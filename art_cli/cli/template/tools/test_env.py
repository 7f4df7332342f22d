"""Tests of the env's promises. Write these first: training finds every mistake in a reward."""

import asyncio
from collections.abc import Iterable

import pytest
from env import LeaveDesk, call

from art_cli import Scenario, ToolError, Trajectory, play

CFG = LeaveDesk.Config()
LOOK = call("days_left", name="Ann")


def episode(asked: int, left: int, turns: Iterable[str]) -> tuple[LeaveDesk, float]:
    """A played episode of Ann's and its reward; `turns` are what the model says."""
    data = {"name": "Ann", "asked": asked, "left": left}
    env = LeaveDesk(Scenario(id="test", split="train", seed=0, data=data), CFG)
    messages = play(env, iter([*turns, "", "", ""]).__next__)
    return env, asyncio.run(env.score(Trajectory(scenario=env.scenario, messages=messages)))


def grant(days: int) -> str:
    """The turns of a model that grants Ann leave."""
    return call("grant", name="Ann", days=days)


def test_the_perfect_clerk_earns_all() -> None:
    for scenario in LeaveDesk.scenarios(CFG, "val"):
        env = LeaveDesk(scenario, CFG)
        messages = play(env, env.gold().__next__)
        assert asyncio.run(env.score(Trajectory(scenario=scenario, messages=messages))) == 1.0


def test_only_what_is_left_is_granted() -> None:
    assert episode(5, 3, [LOOK, grant(3), "done"])[1] == 1.0
    assert episode(5, 3, [LOOK, grant(5), "done"])[1] == 0.2
    assert episode(2, 3, [LOOK, grant(3), "done"])[1] == 0.2
    assert episode(5, 0, [LOOK, "none"])[1] == 1.0


def test_who_does_not_look_or_does_not_answer_earns_nothing() -> None:
    assert episode(2, 3, [grant(2), "done"])[1] == 0.0
    assert episode(2, 3, [LOOK, grant(2)])[1] == 0.0


def test_nonsense_earns_nothing_and_breaks_nothing() -> None:
    for answer in ("", "done", "<tool_call>{", call("grant", name="Ann", days="x"), "9" * 100):
        env, reward = episode(5, 3, [answer])
        assert reward == 0.0 and env.granted == 0


def test_a_tool_refuses_with_a_reason() -> None:
    env, _ = episode(5, 3, [LOOK])
    with pytest.raises(ToolError, match="nobody called 'Bob' has asked"):
        env.grant("Bob", 1)
    with pytest.raises(ToolError, match="at least 1"):
        env.grant("Ann", 0)
