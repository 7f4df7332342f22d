"""The models that an env asks: opened before the run, counted, and whose failure is whose."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from loopback_judge import LoopbackJudge, refused, says

from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.llm import LLMConfig, PricesConfig
from art_cli.envs.base import Done, Env
from art_cli.envs.tools import Tool
from art_cli.errors import PreflightError
from art_cli.llms.services import RunServices
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.first_episode import check_env, offered_tools
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=7)


class Talk(Env):
    """A user who is played by a model."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Its setting."""

        user: LLMConfig | None = None

    async def start(self) -> str:
        return (await self.user("Say what you want.")).strip()

    async def reply(self, text: str) -> str | Done:
        said = await self.user(text)
        return Done() if said == "bye" else said

    async def user(self, text: str) -> str:
        llm = self.services.llm(self.cfg.user)
        return (await llm.ask([{"role": "user", "content": text}])).text

    async def score(self, trajectory: Trajectory) -> float:
        return 1.0


class Parrot(TurnAgent):
    async def act(self, messages: list[Message]) -> str:
        return messages[-1]["content"]

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


def settings(server: LoopbackJudge, **more: Any) -> Talk.Config:
    return Talk.Config(user=LLMConfig(model=server.model, api_base=server.api_base, **more))


def play(cfg: Talk.Config) -> tuple[Trajectory, dict[str, float]]:
    async def one() -> tuple[Trajectory, dict[str, float]]:
        services = await RunServices.open(EnvConfig(use="x"), cfg)
        try:
            trajectory = await rollout(Talk, cfg, SCENARIO, Parrot(), services)
            return trajectory, services.take_metrics()
        finally:
            await services.close()

    return asyncio.run(one())


def test_an_env_talks_with_a_model_and_what_it_takes_is_counted() -> None:
    with LoopbackJudge(says("4"), says("a mug"), says("blue"), then=says("bye")) as server:
        prices = PricesConfig(input=1.0, output=1.0)
        trajectory, metrics = play(settings(server, prices=prices))
    assert [m["content"] for m in trajectory.messages] == ["a mug", "a mug", "blue", "blue"]
    assert trajectory.reward == 1.0 and trajectory.stop_reason == "env"
    assert metrics["llm/calls"] == 3 and metrics["llm/latency_s"] > 0
    assert metrics["costs/llm_usd"] == pytest.approx(4 * 1100 / 1e6)  # the question is paid, too


def test_a_model_that_fails_is_not_bad_play() -> None:
    with LoopbackJudge(says("4"), says("a mug"), then=refused(400, "it is ill")) as server:
        trajectory, _ = play(settings(server))
    assert trajectory.reward is None and trajectory.stop_reason == "error"
    assert trajectory.error and "it is ill" in trajectory.error


def test_a_model_that_does_not_answer_is_told_before_the_run() -> None:
    with (
        LoopbackJudge(then=refused(401, "wrong key")) as server,
        pytest.raises(PreflightError, match=r"env.args.user: .*wrong key"),
    ):
        play(settings(server))


def test_the_reference_needs_an_adapter() -> None:
    with pytest.raises(PreflightError, match=r"reference.*model\.adapter is null"):
        play(Talk.Config(user=LLMConfig(model="reference")))


def test_without_a_run_an_env_that_asks_first_is_not_opened() -> None:
    cfg = Talk.Config(user=LLMConfig(model="openai/gpt-4.1"))
    assert asyncio.run(check_env(Talk, cfg)).opening == []


class Clerk(Talk):
    """Knows its tools before it begins, and asks as it does."""

    def tools(self) -> list[Tool]:
        of = {"type": "object", "properties": {}}
        return [Tool(name="look", description="Look it up.", parameters=of, writes=False)]


def test_tools_that_are_known_before_the_first_question_are_known_without_it() -> None:
    cfg = Clerk.Config(user=LLMConfig(model="openai/gpt-4.1"))
    (tool,) = asyncio.run(offered_tools(Clerk, cfg))
    assert tool["function"]["name"] == "look"
