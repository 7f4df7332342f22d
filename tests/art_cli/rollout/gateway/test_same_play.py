"""One play through every protocol: the tokens, what is trained and what is scored are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import pytest
from hosted import host, script

from art_cli.chat.render import Renderer
from art_cli.rollout.agents.function import Task
from art_cli.types import Trajectory

PRICE = '<tool_call>{"name": "price", "arguments": {"item": "mug"}}</tool_call>'
SELL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
TURNS = (f"<think>first</think>I ask.{PRICE}\n{PRICE}", SELL, "It is sold.")
Calls = list[tuple[str, str, dict[str, Any]]]


async def chat(client: Any, task: Task, stream: bool) -> None:
    while True:
        asked = {"model": "m", "messages": task.messages, "tools": task.tools}
        if stream:
            async with client.chat.completions.stream(**asked) as events:
                answer = await events.get_final_completion()
        else:
            answer = await client.chat.completions.create(**asked)
        message = answer.choices[0].message
        task.messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            result = await task.call_tool(call.function.name, json.loads(call.function.arguments))
            task.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


async def responses(client: Any, task: Task, stream: bool) -> None:
    tools = [{"type": "function", **t["function"]} for t in task.tools]
    items: list[Any] = list(task.messages)
    while True:
        asked = {"model": "m", "input": items, "tools": tools}
        if stream:
            async with client.responses.stream(**asked) as events:
                answer = await events.get_final_response()
        else:
            answer = await client.responses.create(**asked)
        items += [item.model_dump(exclude={"parsed_arguments"}) for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return
        for call in calls:
            result = await task.call_tool(call.name, json.loads(call.arguments))
            gave = {"type": "function_call_output", "call_id": call.call_id, "output": result}
            items.append(gave)


async def messages(client: Any, task: Task, stream: bool) -> None:
    functions = [t["function"] for t in task.tools]
    tools = [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in functions
    ]
    [system, *said] = task.messages
    url = str(client.base_url).removesuffix("/v1/")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as claude:
        while True:
            asked: Any = {"model": "m", "messages": said, "tools": tools, "max_tokens": 99}
            asked |= {"system": system["content"], "thinking": {"type": "adaptive"}}
            if stream:
                async with claude.messages.stream(**asked) as events:
                    answer = await events.get_final_message()
            else:
                answer = await claude.messages.create(**asked)
            said.append({"role": "assistant", "content": answer.content})
            uses = [b for b in answer.content if b.type == "tool_use"]
            if not uses:
                return
            results = []
            for use in uses:
                result = await task.call_tool(use.name, use.input)
                gave = {"type": "tool_result", "tool_use_id": use.id, "content": result}
                results.append(gave)
            said.append({"role": "user", "content": results})


def completions(renderer: Renderer) -> Callable[[Any, Task, bool], Awaitable[None]]:
    """An agent that writes the template itself."""

    async def agent(client: Any, task: Task, stream: bool) -> None:
        text = renderer.offering(task.tools).text(list(task.messages))
        while True:
            asked = {"model": "m", "prompt": text, "max_tokens": 99}
            if stream:
                pieces = await client.completions.create(**asked, stream=True)
                said = "".join([p.choices[0].text async for p in pieces])
            else:
                said = (await client.completions.create(**asked)).choices[0].text
            text += f"{said}<|im_end|>\n"
            calls = [c for c in renderer.read(said).calls if not isinstance(c, str)]
            if not calls:
                return
            for call in calls:
                result = await task.call_tool(call["name"], call["arguments"])
                text += f"<|im_start|>tool\n{result}<|im_end|>\n"
            text += "<|im_start|>assistant\n"

    return agent


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_play_gives_the_same_tokens_through_every_protocol(
    make_policy: Any, stream: bool
) -> None:
    policy = make_policy()

    def play(agent: Any) -> tuple[Any, Trajectory]:
        engine = script(policy, *TURNS)

        async def function(client: Any, task: Task) -> None:
            await agent(client, task, stream)

        trajectory = asyncio.run(host(policy, engine, function))
        [s] = trajectory.sequences
        return (s.ids, s.mask, s.engine_logprobs, engine.asked), trajectory

    plain = completions(Renderer(policy.tokenizer))
    first, trajectory = play(chat)
    assert trajectory.reward == pytest.approx(1.1) and sum(first[1]) > 60
    for agent in (responses, messages, plain):
        tokens, other = play(agent)
        assert tokens == first
        assert other.reward == trajectory.reward
