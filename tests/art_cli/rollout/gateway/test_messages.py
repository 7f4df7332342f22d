"""What a client of Anthropic's gets: its own types read every answer and every event."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest
from hosted import Cut, host, script

from art_cli.rollout.agents.function import Task
from art_cli.rollout.gateway.apis import serving
from art_cli.types import Trajectory

CALL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
THINKS = f"<think>hm</think>I will sell it, gladly, with all my heart.{CALL}"
USER = {"role": "user", "content": "hi"}
ASKED: Any = {"model": "claude", "max_tokens": 50, "messages": [USER]}


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function of (client, task); the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any) -> Trajectory:
        play.engine = script(policy, *texts)

        async def function(client: Any, task: Task) -> None:
            url = str(client.base_url).removesuffix("/v1/")
            async with anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as claude:
                await agent(claude, task)

        return asyncio.run(host(policy, play.engine, function))

    play.policy = policy
    return play


def tools_of(task: Task) -> list[Any]:
    functions = [t["function"] for t in task.tools]
    return [
        {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}
        for f in functions
    ]


def said(play: Any, trajectory: Trajectory) -> str:
    [s] = trajectory.sequences
    return play.policy.tokenizer.decode([i for i, m in zip(s.ids, s.mask, strict=True) if m])


@pytest.mark.parametrize("thinking", [True, False])
def test_a_play_with_tools_is_one_sequence(play: Any, thinking: bool) -> None:
    more: Any = {"thinking": {"type": "adaptive"}} if thinking else {}

    async def agent(claude: Any, task: Task) -> None:
        more["tools"], more["system"] = tools_of(task), [{"type": "text", "text": "You sell."}]
        messages: list[Any] = task.messages[1:]
        first = await claude.messages.create(**ASKED | {"messages": messages}, **more)
        *thought, text, use = first.content
        assert [b.thinking for b in thought] == (["hm"] if thinking else [])
        assert text.text == "I will sell it, gladly, with all my heart."
        assert (use.name, use.input, first.stop_reason) == ("sell", {"item": "mug"}, "tool_use")
        result = await task.call_tool(use.name, use.input)
        gave = {"type": "tool_result", "tool_use_id": use.id, "content": result}
        messages += [{"role": "assistant", "content": first.content}]
        messages += [{"role": "user", "content": [gave]}]
        second = await claude.messages.create(**ASKED | {"messages": messages}, **more)
        assert [b.text for b in second.content] == ["bye"] and second.stop_reason == "end_turn"

    trajectory = play(agent, THINKS, "bye")
    assert said(play, trajectory) == f"{THINKS}<|im_end|>bye<|im_end|>"
    assert "<|im_start|>tool\nsold<|im_end|>" in play.policy.tokenizer.decode(play.engine.asked[1])
    assert trajectory.reward == pytest.approx(1.1)


def test_a_stream_says_the_same_as_an_answer(play: Any) -> None:
    async def agent(claude: Any, task: Task) -> None:
        more: Any = {"tools": tools_of(task), "thinking": {"type": "enabled", "budget_tokens": 9}}
        whole = await claude.messages.create(**ASKED, **more)
        kinds = []
        async with claude.messages.stream(**ASKED, **more) as stream:
            async for event in stream:
                kinds.append(event.type)
            final = await stream.get_final_message()
        assert {"message_start", "content_block_start", "thinking", "signature"} <= {*kinds}
        assert {"text", "input_json", "content_block_stop", "message_stop"} <= {*kinds}
        for one, other in zip(whole.content, final.content, strict=True):
            assert {**one.model_dump(), "id": 0} == {**other.model_dump(), "id": 0}
        assert (final.usage.output_tokens, final.stop_reason) == (
            whole.usage.output_tokens,
            "tool_use",
        )

    assert play(agent, THINKS, THINKS).error is None


def test_a_waiting_stream_pings(play: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "HEARTBEAT", 0.05)

    seen = asyncio.Event()

    async def slow() -> str:
        await asyncio.wait_for(seen.wait(), 300)
        return "hello"

    async def agent(claude: Any, task: Task) -> None:
        url = f"{claude.base_url}/v1/messages".replace("//v1", "/v1")
        text = ""
        async with claude._client.stream("POST", url, json=ASKED | {"stream": True}) as raw:
            async for part in raw.aiter_text():
                text += part
                if text.count('event: ping\ndata: {"type": "ping"}\n\n') >= 2:
                    seen.set()
        assert "hello" in text
        async with claude.messages.stream(**ASKED) as stream:
            assert await stream.get_final_text() == "hello"

    play(agent, slow, slow)


@pytest.mark.parametrize(
    ("turn", "more", "reason", "sequence"),
    [
        ("hello", {}, "end_turn", None),
        (Cut("hello"), {}, "max_tokens", None),
        ("hello", {"stop_sequences": ["x", "lo"]}, "stop_sequence", "lo"),
    ],
)
def test_why_a_turn_ended_is_told(
    play: Any, turn: str, more: Any, reason: str, sequence: str | None
) -> None:
    async def agent(claude: Any, task: Task) -> None:
        message = await claude.messages.create(**ASKED, **more)
        assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
        assert message.content[0].text == ("hel" if sequence else "hello")

    play(agent, turn)


@pytest.mark.parametrize("merged", [True, False])
def test_a_turn_that_was_begun_is_gone_on_with(play: Any, merged: bool) -> None:
    begun = {"role": "assistant", "content": "The price is"}

    async def agent(claude: Any, task: Task) -> None:
        first = await claude.messages.create(**ASKED | {"messages": [USER, begun]})
        assert first.content[0].text == " 3 euros."
        words = {"role": "assistant", "content": "The price is 3 euros."}
        rest = {"role": "assistant", "content": first.content}
        history = [USER, words, USER] if merged else [USER, begun, rest, USER]
        await claude.messages.create(**ASKED | {"messages": history})

    trajectory = play(agent, " 3 euros.", "ok")
    assert said(play, trajectory) == " 3 euros.<|im_end|>ok<|im_end|>"
    assert "The price is 3 euros." in play.policy.tokenizer.decode(trajectory.sequences[0].ids)


@pytest.mark.parametrize(
    ("choice", "begins"),
    [
        ({"type": "any"}, '<tool_call>{"name": "'),
        ({"type": "tool", "name": "sell"}, '<tool_call>{"name": "sell", "arguments": '),
    ],
)
def test_a_call_can_be_forced(play: Any, choice: Any, begins: str) -> None:
    async def agent(claude: Any, task: Task) -> None:
        message = await claude.messages.create(**ASKED, tools=tools_of(task), tool_choice=choice)
        assert [b.name for b in message.content] == ["sell"]

    assert said(play, play(agent, CALL.removeprefix(begins))).startswith(CALL.removeprefix(begins))


def test_tokens_are_counted_and_models_are_named(play: Any) -> None:
    async def agent(claude: Any, task: Task) -> None:
        asked = {"model": "m", "messages": [USER], "tools": tools_of(task), "system": "Sell."}
        counted = await claude.messages.count_tokens(**asked)
        answer = await claude.messages.create(**asked, max_tokens=5)
        assert counted.input_tokens == answer.usage.input_tokens
        [model] = (await claude.models.list()).data
        assert model.id == "policy" and model.max_input_tokens > 1000
        assert (await claude.models.retrieve("claude-x")).display_name == "claude-x"

    trajectory = play(agent, "a")
    assert len(trajectory.policy_versions) == 1


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"messages": []}, "messages: List should have at least 1 item"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages.0.role: expected one of"),
        ({"messages": [{"role": "user", "content": 7}]}, "expected text or a list of blocks"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "send the image as"),
        ({"tools": [{"type": "web_fetch_20250910", "name": "x"}]}, "give the agent a tool of its"),
        ({"tool_choice": {"type": "tool", "name": "x"}}, "x is not among the tools"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": [USER | {"content": "no " * 3000}]}, "prompt is too long: "),
    ],
)
def test_what_is_refused_says_what_to_do(play: Any, wrong: dict[str, Any], what: str) -> None:
    async def agent(claude: Any, task: Task) -> None:
        with pytest.raises(anthropic.BadRequestError) as raised:
            await claude.messages.create(**{**ASKED, **wrong})
        error: Any = raised.value.body
        assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
        assert what in error["error"]["message"]

    play(agent)


def test_a_tool_runner_that_wants_its_history_kept_sends_all_of_it(play: Any) -> None:
    async def agent(claude: Any, task: Task) -> None:
        def wrapped(tool: dict[str, Any]) -> Any:
            async def call(**arguments: Any) -> str:
                return await task.call_tool(tool["name"], arguments)

            return anthropic.beta_async_tool(call, **tool)

        tools = [wrapped(tool) for tool in tools_of(task)]
        await claude.beta.messages.tool_runner(**ASKED, tools=tools).until_done()

    trajectory = play(agent, CALL, "It is sold.")
    assert [s.tool for s in trajectory.steps] == ["sell", None] and len(trajectory.sequences) == 1
