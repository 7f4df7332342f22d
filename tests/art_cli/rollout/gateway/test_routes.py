"""Which model answers to which name, and what of it is learned from."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hosted import ScriptEngine, host, script

from art_cli.chat.render import Renderer
from art_cli.errors import BudgetError, LLMError
from art_cli.llms.base import NativeCall, Reply
from art_cli.rollout.gateway.routes import Routes
from art_cli.types import Trajectory

SELL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'


@dataclass
class ScriptLLM:
    """Implements AskedLLM: gives replies in turn, and keeps what it was asked."""

    replies: list[Reply | Exception]
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    name: str = "openai/other"

    async def ask(self, messages: Any, schema: Any = None, tools: Any = None, more: Any = None):
        self.asked.append((messages, schema, tools, more))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def said(text: str = "fine", **more: Any) -> Reply:
    return Reply(text=text, num_read=10, num_written=3, usd=0.25, **more)


async def agent(client: Any, task: Any) -> str:
    """A guardrail before and a title after, under names of their own; it sells what is wanted."""
    check = [{"role": "user", "content": f"Is this fine? {task.messages[-1]['content']}"}]
    limits = {"max_tokens": 5, "temperature": 0, "stop": ["!"]}
    checked = await client.chat.completions.create(model="guard", messages=check, **limits)
    assert checked.choices[0].message.content == "fine"
    answer = await client.chat.completions.create(
        model="worker", messages=task.messages, tools=task.tools
    )
    for call in answer.choices[0].message.tool_calls or ():
        await task.call_tool(call.function.name, json.loads(call.function.arguments))
    titled = [{"role": "user", "content": "A title?"}]
    await client.chat.completions.create(model="title", messages=titled)
    return "bye"


@pytest.fixture
def play(make_policy: Any) -> Any:
    policy = make_policy()

    def play(routes: Routes, *texts: str, who: Any = agent) -> tuple[Trajectory, ScriptEngine]:
        engine = script(policy, *texts)
        return asyncio.run(host(policy, engine, who, routes=routes)), engine

    play.script = lambda *texts: ScriptEngine(Renderer(policy.tokenizer), list(texts))
    return play


def test_a_named_model_answers_and_is_not_learned_from(play: Any) -> None:
    guard = ScriptLLM([said()])
    t, _ = play(Routes(models={"guard": guard}), SELL, "Mugs")
    assert t.error is None
    assert t.reward == pytest.approx(1.1) and t.usd == 0.25
    assert len(t.sequences) == 2 and len(t.policy_versions) == 2
    [(messages, schema, tools, more)] = guard.asked
    assert messages == [{"role": "user", "content": "Is this fine? I want a mug."}]
    assert (schema, tools) == (None, None)
    assert more == {"max_tokens": 5, "temperature": 0.0, "stop": ["!"]}
    shown = [[m["content"] for m in c] for c in t.side_conversations]
    assert ["Is this fine? I want a mug.", "fine"] in shown


def test_plain_text_goes_on_only_with_the_model_that_began_it(play: Any) -> None:
    async def continues(client: Any, task: Any) -> str:
        begun = await client.completions.create(model="policy", prompt="Once", max_tokens=9)
        longer = f"Once{begun.choices[0].text}<|im_end|> and then"
        await client.completions.create(model="title", prompt=longer, max_tokens=9)
        return "bye"

    base = play.script(" the end")
    routes = Routes(bases=frozenset({"title"}), base=base)
    t, engine = play(routes, " upon a time", who=continues)
    assert t.error is None and (len(engine.asked), len(base.asked)) == (1, 1)
    assert len(t.sequences) == 1 and t.metrics["policy_calls"] == 1


def test_the_base_answers_on_an_engine_of_its_own(play: Any) -> None:
    base = play.script("Mugs of old")
    routes = Routes(bases=frozenset({"title"}), base=base)
    t, engine = play(routes, "fine", SELL)
    assert t.reward == pytest.approx(1.1)
    assert len(t.sequences) == 2 and t.metrics["policy_calls"] == 2
    assert len(base.asked) == 1 and base.num_open == engine.num_open == 0
    assert ["A title?", "Mugs of old"] in [[m["content"] for m in c] for c in t.conversations]


@pytest.mark.parametrize(
    ("train", "expected"), [("all", 3), ("main", 1), (frozenset({"worker", "title"}), 2)]
)
def test_what_is_learned_from(play: Any, train: Any, expected: int) -> None:
    t, _ = play(Routes(train=train), "fine", SELL, "Mugs")
    assert len(t.sequences) == expected and t.reward == pytest.approx(1.1)
    assert len(t.policy_versions) == 3 and len(t.conversations) == 3
    if train == "main":
        assert t.num_sampled == len(t.sequences[0].ids) - t.sequences[0].mask.index(1)


def test_one_history_under_two_names_is_learned_from_by_name(play: Any) -> None:
    async def both(client: Any, task: Any) -> str:
        messages = list(task.messages)
        for name in ("worker", "guard", "worker"):
            answer = await client.chat.completions.create(model=name, messages=messages)
            messages.append({"role": "assistant", "content": answer.choices[0].message.content})
            messages.append({"role": "user", "content": "and?"})
        return "bye"

    t, engine = play(Routes(train=frozenset({"worker"})), "one", "two", "three", who=both)
    sampled = sum(len(engine.renderer.encode(text)) + 1 for text in ("one", "three"))
    assert t.num_sampled == sampled


@pytest.mark.parametrize("error", [LLMError("gone"), BudgetError("spent")])
def test_a_model_that_fails_is_not_the_agents_fault(play: Any, error: Exception) -> None:
    routes = Routes(models={"guard": ScriptLLM([error])})
    if isinstance(error, BudgetError):  # which ends the run
        with pytest.raises(BudgetError, match="spent"):
            play(routes)
        return
    t, _ = play(routes)
    assert t.reward is None and "gone" in (t.error or "")


def test_a_model_in_the_policys_place_plays_with_its_own_calls(play: Any) -> None:
    call = NativeCall(id="c1", name="sell", arguments='{"item": "mug"}')
    llm = ScriptLLM([said(), said("", calls=(call,)), said("Mugs")])
    t, engine = play(Routes(in_its_place=llm))
    assert t.error is None
    assert t.reward == pytest.approx(1.1) and engine.asked == []
    assert t.usd == 0.75 and t.num_written == 9 and t.sequences == []
    said_all = [m for c in t.conversations for m in c]
    assert [c["name"] for m in said_all for c in m.get("tool_calls", [])] == ["sell"]
    assert [tool["function"]["name"] for tool in llm.asked[1][2]][:2] == ["price", "sell"]


def test_calls_and_their_results_go_to_a_model_in_its_own_form(play: Any) -> None:
    async def talks(client: Any, task: Any) -> str:
        function = {"name": "price", "arguments": '{"item": "mug"}'}
        called = {"id": "x9", "type": "function", "function": function}
        history = [
            *task.messages,
            {"role": "assistant", "content": "Let me see.", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "x9", "content": "3 euros"},
        ]
        await client.chat.completions.create(model="guard", messages=history)
        await client.chat.completions.create(model="worker", messages=task.messages)
        return "bye"

    guard = ScriptLLM([said()])
    play(Routes(models={"guard": guard}), "ok", who=talks)
    assistant, tool = guard.asked[0][0][-2:]
    [call] = assistant["tool_calls"]
    assert assistant["content"] == "Let me see." and call["function"]["name"] == "price"
    assert tool == {"role": "tool", "tool_call_id": call["id"], "content": "3 euros"}
