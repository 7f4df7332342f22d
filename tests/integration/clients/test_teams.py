"""Agents that are several: some of their calls are a real model's, and none of these is trained."""

from __future__ import annotations

import asyncio

from integration.clients.conftest import Command
from integration.clients.oracle import Oracle
from integration.clients.stage import ROOM, Played, Task, assert_perfect, perform
from loopback_judge import LoopbackJudge, says

from art_cli.chat.render import Renderer
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.llm import LLMConfig
from art_cli.llms.base import Budget
from art_cli.llms.services import RunServices
from art_cli.models.policy import Policy
from art_cli.rollout.agents.build import routes_of

NAME = "gpt-4.1-mini"  # as the program has it


def play(task: Task, policy: Policy, words: list[str], api: LoopbackJudge) -> Played:
    """Return an episode in which `api` answers to the name."""
    llm = LLMConfig(model=api.model, api_base=api.api_base)
    cfg = AgentConfig(use="program", command=words, models={NAME: llm})
    oracle = Oracle(Renderer(policy.tokenizer), policy.grammars, task.gold())

    async def run() -> Played:
        services = await RunServices.open_named({NAME: llm}, Budget(None))
        try:
            routes = routes_of(cfg, services)
            return Played(await perform(task, policy, oracle, words, ROOM, 0, routes), oracle.asked)
        finally:
            await services.close()

    return asyncio.run(run())


def test_a_handoff_behind_a_guardrail(
    desk: list[Task], retail: Task, command: Command, policy: Policy
) -> None:
    words = command("agents_sdk_handoff.py")
    for task in [*desk, retail]:
        with LoopbackJudge(then=says("yes")) as api:
            played = play(task, policy, words, api)
        assert_perfect(played)  # with it: of what is trained, nothing is the guardrail's
        guarded = [ask for ask in api.asked if "about an order" in str(ask.messages)]
        assert len(guarded) == 1 and guarded[0].messages[-1]["role"] == "user"
        assert played.trajectory.metrics["policy_calls"] == len(played.asked)


def test_a_guardrail_that_says_no_ends_the_play(
    desk: list[Task], command: Command, policy: Policy
) -> None:
    with LoopbackJudge(then=says("no")) as api:
        played = play(desk[0], policy, command("agents_sdk_handoff.py"), api)
    assert played.trajectory.reward == 0.0, played.printed
    assert "InputGuardrailTripwireTriggered" in played.printed
    assert not played.trajectory.steps
