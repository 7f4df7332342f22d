"""What the env did is what scores go by, whatever an agent makes of its history."""

import asyncio
import json
from typing import Any

import pytest
from hosted import Shop, host, script

from art_cli.rollout.agents.function import Task
from art_cli.types import Trajectory

SELL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'


class Strict(Shop):
    """A refused call costs 0.1."""

    async def score(self, trajectory: Trajectory) -> float:
        return float(self.sold == ["mug"]) - 0.1 * trajectory.num_tool_errors


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function; the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any, **more: Any) -> Trajectory:
        return asyncio.run(host(policy, script(policy, *texts), agent, env=Strict, **more))

    return play


async def turn(client: Any, task: Task, messages: list[Any]) -> str | None:
    """One turn of a plain agent: the policy's words, or None once its calls have been made."""
    answer = await client.chat.completions.create(model="m", messages=messages, tools=task.tools)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or []:
        result = await task.call_tool(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return None if message.tool_calls else message.content


async def plain(client: Any, task: Task) -> str:
    while True:
        if said := await turn(client, task, task.messages):
            return said


async def forking(client: Any, task: Task) -> str:
    """Says at each turn what time it is, so that every call begins a sequence of its own."""
    for hour in range(24):
        clock = {"role": "system", "content": f"It is {hour} o'clock."}
        messages = [clock, *task.messages]
        said = await turn(client, task, messages)
        task.messages = messages[1:]
        if said:
            return said
    raise AssertionError


def test_the_same_play_earns_the_same_whatever_the_history_looks_like(play: Any) -> None:
    whole = play(plain, SELL, SELL, "bye")
    forked = play(forking, SELL, SELL, "bye")
    assert len(whole.sequences) == 1 and len(forked.sequences) == 3
    assert whole.steps == forked.steps and whole.num_tool_errors == 1
    assert whole.reward == forked.reward == pytest.approx(0.9)


def test_an_agents_own_error_message_is_not_charged(play: Any) -> None:
    async def agent(client: Any, task: Task) -> str:
        await turn(client, task, task.messages)
        task.messages[-1]["content"] = "error: my cache is cold"
        await turn(client, task, task.messages)
        return "bye"

    assert play(agent, SELL, "bye").reward == pytest.approx(1.0)


def test_refused_calls_are_charged_though_the_chat_does_not_show_them(play: Any) -> None:
    async def agent(client: Any, task: Task) -> str:
        await turn(client, task, task.messages)
        for _ in range(2):
            await task.call_tool("sell", {"item": "mug"})
        return "bye"

    assert play(agent, SELL).reward == pytest.approx(0.8)
