"""What a client of OpenAI's responses gets: its own types read every answer and every event."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from hosted import Cut, host, script

from art_cli.rollout.agents.function import Task
from art_cli.rollout.gateway.apis.responses.items import chat_messages, seal
from art_cli.rollout.gateway.asked import RequestError
from art_cli.types import Trajectory

CALL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
THINKS = f"<think>hm</think>I will sell it, gladly, with all my heart.{CALL}"


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function; the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any) -> Trajectory:
        play.engine = script(policy, *texts)
        return asyncio.run(host(policy, play.engine, agent))

    play.policy = policy
    return play


def flat(task: Task) -> list[dict[str, Any]]:
    return [{"type": "function", **t["function"]} for t in task.tools]


def said(play: Any, trajectory: Trajectory) -> str:
    [s] = trajectory.sequences
    return play.policy.tokenizer.decode([i for i, m in zip(s.ids, s.mask, strict=True) if m])


@pytest.mark.parametrize("way", ["stateless", "previous_response_id", "item_reference"])
def test_a_play_goes_on_in_one_sequence_whatever_is_remembered(play: Any, way: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        first = await client.responses.create(
            model="m",
            instructions="You sell.",
            input=task.messages[1:],
            tools=flat(task),
            store=way != "stateless",
            include=["reasoning.encrypted_content"],
        )
        thought, words, call = first.output
        assert thought.content[0].text == "hm" and thought.summary == []
        assert first.output_text == "I will sell it, gladly, with all my heart."
        assert (call.name, json.loads(call.arguments)) == ("sell", {"item": "mug"})
        assert first.status == "completed" and first.usage.output_tokens_details.reasoning_tokens
        result = await task.call_tool(call.name, json.loads(call.arguments))
        gave = {"type": "function_call_output", "call_id": call.call_id, "output": result}
        before: list[Any] = {
            "stateless": [
                *task.messages[1:],
                thought.model_dump(exclude={"content"}),
                words.model_dump(),
                call.model_dump(),
            ],
            "item_reference": [
                *task.messages[1:],
                *({"type": "item_reference", "id": item.id} for item in first.output),
            ],
        }.get(way, [])
        second = await client.responses.create(
            model="m",
            instructions="You sell.",
            input=[*before, gave],
            tools=flat(task),
            **({"previous_response_id": first.id} if way == "previous_response_id" else {}),
        )
        assert second.output_text == "bye"

    trajectory = play(agent, THINKS, "bye")
    assert said(play, trajectory) == f"{THINKS}<|im_end|>bye<|im_end|>"
    assert trajectory.reward == pytest.approx(1.1)


@pytest.mark.parametrize(
    "sealed",
    [
        "art:aG0=!!!",  # characters that a lenient decoder drops
        "art:aG0=\n",
        "art: aG0=",
        "art:aG0",  # its padding is missing
        "art:/w==",  # no UTF-8
        "art:aG0=aG0=",
        "art:-_-_",
    ],
)
def test_sealed_thinking_that_was_changed_is_refused(sealed: str) -> None:
    item = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    with pytest.raises(RequestError, match=r"input\.1: encrypted_content is not what was given"):
        chat_messages([{"role": "user", "content": "hi"}, item])


def test_sealed_thinking_is_read_where_the_item_has_no_text() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": seal("hm, é")}
    shown = sealed | {"content": [{"type": "reasoning_text", "text": "shown"}]}
    foreign = sealed | {"encrypted_content": "gAAAA", "summary": [{"type": "text", "text": "sum"}]}
    thoughts = [m["reasoning_content"] for m in chat_messages([sealed, shown, foreign])]
    assert thoughts == ["hm, é", "shown", "sum"]


def test_a_stream_has_all_events_and_says_the_same_as_an_answer(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        asked = {"model": "m", "input": task.messages, "tools": flat(task)}
        asked["reasoning"] = {"summary": "auto"}
        whole = await client.responses.create(**asked)
        kinds, numbers = [], []
        async with client.responses.stream(**asked) as stream:
            async for event in stream:
                kinds.append(event.type.removeprefix("response."))
                numbers.append(event.sequence_number)
            final = await stream.get_final_response()
        assert numbers == list(range(len(numbers)))
        once = [k for n, k in enumerate(kinds) if kinds[n - 1] != k]
        assert once == [
            *("created", "in_progress", "output_item.added"),
            *("reasoning_summary_part.added", "reasoning_summary_text.delta"),
            *("reasoning_summary_text.done", "reasoning_summary_part.done"),
            *("content_part.added", "reasoning_text.delta", "reasoning_text.done"),
            *("content_part.done", "output_item.done", "output_item.added", "content_part.added"),
            *("output_text.delta", "output_text.done", "content_part.done", "output_item.done"),
            *("output_item.added", "function_call_arguments.delta"),
            *("function_call_arguments.done", "output_item.done", "completed"),
        ]
        for one, other in zip(whole.output, final.output, strict=True):
            ids = {"id", "call_id", "parsed_arguments"}
            a, b = one.model_dump(exclude=ids), other.model_dump(exclude=ids)
            for part in [*(a.get("content") or []), *(b.get("content") or [])]:
                part.pop("parsed", None)
            assert a == b
        assert final.usage == whole.usage

    assert play(agent, THINKS, THINKS).error is None


def test_an_answer_that_is_cut_off_is_incomplete(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await client.responses.create(model="m", input="hi", max_output_tokens=3)
        assert answer.status == "incomplete"
        assert answer.incomplete_details.reason == "max_output_tokens"
        stream = await client.responses.create(model="m", input="hi", stream=True)
        assert [e.type async for e in stream][-1] == "response.incomplete"

    play(agent, Cut("a"), Cut("a"))
    assert play.engine.limits[0][0] == 3


def test_logprobs_are_those_that_are_trained_on(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        asked: Any = {"model": "m", "input": "hi", "include": ["message.output_text.logprobs"]}
        answer = await client.responses.create(**asked, top_logprobs=1)
        [part] = answer.output[0].content
        assert {t.logprob for t in part.logprobs} == {-0.5}
        assert part.logprobs[0].top_logprobs[0].token == part.logprobs[0].token

    play(agent, "hello")


@pytest.mark.parametrize(
    ("choice", "begins"),
    [
        ("required", '<tool_call>{"name": "'),
        ({"type": "function", "name": "sell"}, '<tool_call>{"name": "sell", "arguments": '),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "sell"}],
            },
            '<tool_call>{"name": "sell", "arguments": ',
        ),
    ],
)
def test_a_call_can_be_forced(play: Any, choice: Any, begins: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await client.responses.create(
            model="m", input="hi", tools=flat(task), tool_choice=choice
        )
        assert [item.name for item in answer.output] == ["sell"]

    assert said(play, play(agent, CALL.removeprefix(begins))).startswith(CALL.removeprefix(begins))


def test_a_stored_answer_can_be_had_again_until_it_is_deleted(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await client.responses.create(model="m", input="hi", metadata={"a": "b"})
        again = await client.responses.retrieve(answer.id)
        assert again == answer and again.metadata == {"a": "b"}
        await client.responses.delete(answer.id)
        with pytest.raises(openai.NotFoundError, match="send the whole input"):
            await client.responses.create(model="m", input="hi", previous_response_id=answer.id)
        hidden = await client.responses.create(model="m", input="hi", store=False)
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(hidden.id)
        counted = await client.responses.input_tokens.count(model="m", input="hi")
        assert counted.input_tokens == hidden.usage.input_tokens

    play(agent, "a", "b")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"input": []}, "input: Field required"),
        ({"input": [{"type": "computer_call"}]}, "input.0: an item of type 'computer_call'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "send text"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "send the item itself"),
        ({"tools": [{"type": "web_search"}]}, "give the agent a function"),
        ({"conversation": "c"}, "use `previous_response_id`"),
        ({"background": True}, "wait for the answer"),
        ({"tool_choice": "required"}, "there are none"),
        ({"input": [{"type": "compaction_trigger"}]}, "input.0: .*a text summary"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{"}]}, "JSON arguments"),
    ],
)
def test_what_is_refused_says_what_to_do(play: Any, wrong: dict[str, Any], what: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        with pytest.raises(openai.APIStatusError, match=what):
            await client.responses.create(**{"model": "m", "input": "hi", **wrong})
        await client.responses.create(model="m", input="hi")

    assert play(agent, "a").error is None
