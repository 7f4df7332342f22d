"""How a reward is made of its parts, by hand-computed numbers, and what invalid actions cost."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import art_cli as art
from art_cli.config.load import load_experiment
from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import AgentError, ConfigError, EnvError
from art_cli.llms.judges.base import Judge, Score, Verdict
from art_cli.llms.judges.scorer import Scorer
from art_cli.reward import combined, set_reward
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.env_class import env_in
from art_cli.rollout.groups import play_groups
from art_cli.types import RewardParts

SCENARIO = art.Scenario(id="train-0", split="train", seed=0)
PRICE = RewardConfig(env=1.0, invalid_action_cost=0.125, max_invalid_cost=0.375)
SHOP = '''
from art_cli import Env, InvalidCallError, Tool, ToolError, tool

class Shop(Env):
    """Sells."""

    max_turns = 9

    def start(self):
        return "Buy."

    @tool()
    def buy(self, num: int) -> str:
        """Buy some."""
        if num > 3:
            raise ToolError("sold out")
        return f"bought {num}"

    def tools(self):
        parameters = {"type": "object"}
        return [*super().tools(), Tool(name="own", description="Own.", parameters=parameters)]

    def call_tool(self, name, arguments):
        raise InvalidCallError("does not fit")

    def score(self, trajectory):
        return 1.0
'''


def call(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


GOOD, SOLD_OUT = call("buy", '{"num": 1}'), call("buy", '{"num": 9}')
WRONG = {
    "no such tool": call("sell"),
    "arguments of another type": call("buy", '{"num": "one"}'),
    "an argument too many": call("buy", '{"num": 1, "colour": 2}'),
    "a call that nobody can read": "<tool_call>{</tool_call>",
    "what the env itself refuses as invalid": call("own"),
}


class Says(TurnAgent):
    """Says given turns, then words."""

    def __init__(self, *turns: str) -> None:
        self._turns = iter(turns)

    async def act(self, messages: list[art.Message]) -> str:
        return next(self._turns, "done")

    def record(self, trajectory: art.Trajectory) -> None:
        pass


def played(env: Any, weights: RewardConfig | None, *turns: str) -> art.Trajectory:
    async def go() -> art.Trajectory:
        jobs = [(SCENARIO, [Says(*turns)])]
        groups = play_groups(env, env.Config(), None, jobs, weights=weights)  # type: ignore[arg-type]
        [(_, group)] = [each async for each in groups]
        return group.trajectories[0]

    return asyncio.run(go())


@pytest.fixture(scope="module", params=[None, sys.executable], ids=["here", "env.python"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("shop") / "shop.py"
    file.write_text(SHOP)
    return env_in(f"{file}:Shop", request.param)


@pytest.mark.parametrize("turn", WRONG.values(), ids=WRONG)
def test_a_call_that_cannot_be_made_costs_its_price(shop: Any, turn: str) -> None:
    t = played(shop, PRICE, GOOD, turn, SOLD_OUT, GOOD + turn)
    assert (t.reward, t.reward_parts) == (0.75, RewardParts(env=1.0, cost=0.25))
    assert t.all_metrics == {
        "invalid_actions": 2.0,
        "invalid_action_cost": 0.25,
        "env_reward": 1.0,
    }


def test_an_episode_loses_no_more_than_a_stated_amount(shop: Any) -> None:
    t = played(shop, PRICE, *WRONG.values())
    assert (t.reward, t.metrics["invalid_actions"]) == (0.625, 5.0)


def test_what_the_env_refuses_for_its_own_reasons_is_free(shop: Any) -> None:
    t = played(shop, PRICE, GOOD, SOLD_OUT)
    assert t.reward == 1.0 and t.num_tool_errors == 1
    assert (t.metrics["invalid_actions"], t.reward_parts.cost) == (0.0, 0.0)


def test_by_default_they_are_free_and_nothing_is_noted(shop: Any) -> None:
    for reward in (None, RewardConfig(env=1.0)):
        t = played(shop, reward, *WRONG.values())
        assert t.reward == 1.0 and t.all_metrics == {}


def test_where_the_env_counts_them_itself_its_number_is_charged() -> None:
    t = art.Trajectory(scenario=SCENARIO, reward_parts=RewardParts(env=0.5), num_invalid=1)
    t.metrics["invalid_actions"] = 2.0
    set_reward(t, PRICE)
    assert (t.reward, t.reward_parts.cost) == (0.25, 0.25)


def test_what_has_failed_has_no_reward(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(SHOP.replace("return 1.0", "raise RuntimeError('the env died')"))
    t = played(env_in(f"{file}:Shop", None), PRICE, *WRONG.values())
    assert t.reward is None and t.all_metrics == {}
    assert t.error == f"{file}:27: RuntimeError: the env died"
    assert t.traceback.startswith("Traceback (most recent call last)")


@pytest.mark.parametrize(("own", "expected"), [(1.0, 0.75), (None, 0.25)])
def test_a_judged_trajectory_pays_once(own: float | None, expected: float) -> None:
    """0.5 x 1 + 1 x 0.5 - 0.25, and 1 x 0.5 - 0.25 without a score of the env's own."""

    class Halves(Judge):
        async def judge(self, transcripts: list[Any]) -> Verdict:
            scores = [Score(score=0.5, explanation="") for _ in transcripts]
            return Verdict(scores=scores)

    weights = RewardConfig(env=0.5 if own else 0.0, judge=1.0, invalid_action_cost=0.125)
    t = art.Trajectory(scenario=SCENARIO, reward_parts=RewardParts(env=own), num_invalid=2)
    set_reward(t, weights)
    asyncio.run(Scorer(Halves(), weights, "drop")(art.TrajectoryGroup([t])))  # type: ignore[abstract]
    assert t.reward == expected
    assert t.reward_parts == RewardParts(env=own, judge=0.5, cost=0.25)


ENV, AGENT = RewardParts(env=0.5), RewardParts(env=0.5, agent=0.25)
JUDGED = RewardParts(env=0.5, agent=0.25, judge=0.75, cost=0.125)


@pytest.mark.parametrize(
    ("parts", "weights", "expected"),
    [
        (RewardParts(), None, None),
        (ENV, None, 0.5),
        (RewardParts(env=0.5, judge=0.75), None, 0.75),  # the judge's replaces it
        (RewardParts(judge=0.75), None, 0.75),
        (ENV, RewardConfig(env=0.25, judge=1.0), 0.5),  # not judged yet: the env's counts once
        (RewardParts(), RewardConfig(judge=1.0), None),
        (AGENT, RewardConfig(env=0.5, judge=1.0, agent=2.0), 0.5),
        (AGENT, RewardConfig(env=0.5, agent=2.0), 0.75),
        (RewardParts(agent=0.25), RewardConfig(agent=2.0), 0.5),
        (JUDGED, RewardConfig(env=2.0, agent=4.0, judge=1.0), 2.625),  # 1 + 1 + 0.75 - 0.125
        (RewardParts(env=0.0, judge=0.75, is_gated=True), RewardConfig(env=1, judge=2), 0.0),
        (RewardParts(win=0.5, cost=0.125), None, 0.5),
    ],
)
def test_parts_are_combined(
    parts: RewardParts, weights: RewardConfig | None, expected: float | None
) -> None:
    assert combined(parts, weights) == expected


@pytest.mark.parametrize(
    ("parts", "weights", "error"),
    [
        (ENV, RewardConfig(env=1.0, agent=1.0), AgentError),
        (RewardParts(agent=1.0), RewardConfig(env=1.0, agent=1.0), EnvError),
        (RewardParts(), RewardConfig(env=1.0, judge=1.0), EnvError),
        (RewardParts(), RewardConfig(judge=1.0, gate="env"), EnvError),
    ],
)
def test_a_part_that_counts_must_be_there(
    parts: RewardParts, weights: RewardConfig, error: type[Exception]
) -> None:
    with pytest.raises(error):
        set_reward(art.Trajectory(scenario=SCENARIO, reward_parts=parts), weights)


CONFIG = "{env: {use: order_desk}, model: {base: tiny}, train: {steps: 1}, sft: {}, reward: R}"


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        ("{env: 1, invalid_action_cost: -0.1}", "must be at least 0"),
        ("{env: 1, max_invalid_cost: 1.0}", "has no effect with reward.invalid_action_cost=0"),
        ("{invalid_action_cost: 0.1}", "nothing to learn from"),
        ("{env: 0.5, invalid_action_cost: 0.1}", "write 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, reward: str, said: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG.replace("R}", f"{reward}}}"))
    with pytest.raises(ConfigError, match=said):
        load_experiment([file])
