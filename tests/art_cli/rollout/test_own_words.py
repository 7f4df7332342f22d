"""Episodes of models that call tools in other formats than the text form's."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from chat_models import BY_NAME, call
from hosted import SCENARIO, ScriptEngine, Shop, host

from art_cli.chat.render import Renderer
from art_cli.envs.base import Env
from art_cli.envs.tools import schemas_of
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import rollout
from art_cli.training.trainers.sft import demonstration
from art_cli.types import Completion, Message, Trajectory

BOTH = call("price", item="a mug") + call("sell", item="mug")


@dataclass
class Says:
    """Implements Session: says what it is given, in the model's own words."""

    renderer: Renderer
    turns: list[str]

    async def generate(self, ids: list[int]) -> Completion:
        text = self.turns.pop(0)
        calls = bool(self.renderer.read(text).calls)
        end = self.renderer.capabilities.end_of_calls if calls else self.renderer.end_of_turn
        said = list(self.renderer.encode(text + end))
        return Completion(
            token_ids=said, logprobs=[-1.0] * len(said), finish_reason="stop", policy_version=0
        )

    def close(self) -> None:
        pass


def play(name: str, *turns: str, env: type[Env] = Shop) -> Trajectory:
    """Play an episode whose turns are given in the text form, or in own words behind a "!"."""
    renderer = BY_NAME[name].renderer(schemas_of(env))
    own = [t[1:] if t.startswith("!") else renderer.own_words(t) for t in turns]
    agent = PolicyAgent(renderer, lambda: Says(renderer, own), 10_000)
    return asyncio.run(rollout(env, None, SCENARIO, agent))


SEVERAL = [n for n in BY_NAME if n != "gpt-oss"]  # which ends its turn behind a call


@pytest.mark.parametrize("name", SEVERAL)
def test_two_calls_in_one_turn_are_both_made(name: str) -> None:
    t = play(name, BOTH, "It was 5 euros. bye")
    assert t.error is None and t.reward == 1.1
    assert [m["content"] for m in t.messages if m["role"] == "tool"] == ["5 euros", "sold"]
    assert t.messages[2]["content"].replace("\n", "") == BOTH


@pytest.mark.parametrize("name", ["qwen3-coder", "mistral-nemo", "glm-4.6", "gpt-oss", "kimi-k2"])
def test_the_trajectory_has_the_text_form_and_the_sequence_the_models_own_words(name: str) -> None:
    t = play(name, "<think>\nA mug.\n</think>\n\n" + call("sell", item="mug"), "Sold. bye")
    assert call("sell", item="mug") in t.messages[2]["content"]
    assert t.messages[2].get("tool_calls") == [{"name": "sell", "arguments": {"item": "mug"}}]
    renderer = BY_NAME[name].renderer(schemas_of(Shop))
    first = t.sequences[0]
    begin = first.mask.index(1)
    end = first.mask.index(0, begin) if 0 in first.mask[begin:] else len(first.mask)
    turn = renderer.read(renderer.decode(first.ids[begin:end]))
    assert turn.calls == t.messages[2]["tool_calls"] and turn.thought in ("A mug.", "")
    assert t.reward == 1.1 and t.metrics["heard"] == 1.0


def test_a_broken_call_reads_what_is_wrong_in_its_own_format() -> None:
    broken = "!<tool_call>\n<function=sell>\n<parameter=item>mug\n</function>\n</tool_call>"
    t = play("qwen3-coder", broken, call("sell", item="mug"), "bye")
    (first, second) = [m for m in t.messages if m["role"] == "tool"]
    assert first.get("is_error") and "expected <tool_call><function=NAME>" in first["content"]
    assert second["content"] == "sold" and t.reward == 1.1


def test_an_argument_has_the_type_that_the_tool_asks_for() -> None:
    t = play("qwen3-coder", call("price", item="17"), "bye")
    assert t.messages[2].get("tool_calls") == [{"name": "price", "arguments": {"item": "17"}}]
    assert t.messages[3]["content"] == "2 euros"


def test_what_is_thought_in_another_style_is_not_heard_by_the_env() -> None:
    t = play("ministral-3", "![THINK]bye, thinks the model[/THINK]Hello", "bye")
    assert t.metrics["heard"] == 2.0 and t.num_turns == 2
    assert t.messages[2]["content"] == "<think>\nbye, thinks the model\n</think>\n\nHello"


def test_a_demonstration_is_said_in_the_models_own_words_and_ended_as_it_would() -> None:
    said: list[Message] = [
        {"role": "user", "content": "I want a mug."},
        {"role": "assistant", "content": call("sell", item="mug")},
        {"role": "tool", "content": "sold"},
        {"role": "assistant", "content": "Here you are."},
    ]
    for name, call_text, answer in (
        (
            "qwen3-coder",
            "<tool_call>\n<function=sell>\n<parameter=item>\nmug\n</parameter>\n</function>\n"
            "</tool_call><|im_end|>",
            "Here you are.<|im_end|>",
        ),
        (
            "qwen3.5",
            "\n</think>\n\n<tool_call>\n<function=sell>\n<parameter=item>\nmug\n</parameter>\n"
            "</function>\n</tool_call><|im_end|>",
            "\n</think>\n\nHere you are.<|im_end|>",
        ),
        (
            "gpt-oss",
            ' to=functions.sell<|channel|>commentary json<|message|>{"item": "mug"}<|call|>',
            "<|channel|>final<|message|>Here you are.<|return|>",
        ),
        ("smollm3", f"{said[1]['content']}<|im_end|>", "Here you are.<|im_end|>"),
        ("deepseek-r1-distill", f"</think>\n\n{said[1]['content']}", ""),  # it would be thinking
    ):
        renderer = BY_NAME[name].renderer(schemas_of(Shop))
        sampled = [
            renderer._tokenizer.decode([i for i, m in zip(s.ids, s.mask, strict=True) if m])
            for s in demonstration(renderer, said)
        ]
        assert "".join(sampled).startswith(call_text + answer), name


# ---------------------------------------------------------------- programs


def hosted(name: str, agent: Any, *texts: str) -> Trajectory:
    model = BY_NAME[name]
    tokenizer = model.tokenizer(model.template())
    policy: Any = SimpleNamespace(tokenizer=tokenizer)
    renderer = Renderer(tokenizer, schemas_of(Shop))
    engine = ScriptEngine(renderer, [renderer.own_words(t) for t in texts])
    return asyncio.run(host(policy, engine, agent))


async def sells(client: Any, task: Any, **more: Any) -> str:
    """Do what an agent does that was written for OpenAI's API."""
    while True:
        asked = client.chat.completions.create
        answer = await asked(model="policy", messages=task.messages, tools=task.tools, **more)
        message = answer.choices[0].message
        task.messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        assert answer.choices[0].finish_reason == "tool_calls"
        for made in reversed(message.tool_calls):  # in whatever order
            result = await task.call_tool(made.function.name, eval(made.function.arguments))
            answered = {"role": "tool", "tool_call_id": made.id, "content": result}
            task.messages.append(answered)


@pytest.mark.parametrize("name", ["qwen3-coder", "mistral-small-3.2", "devstral-2507"])
def test_a_program_gets_openais_calls_and_its_turns_stay_one_sequence(name: str) -> None:
    t = hosted(name, sells, BOTH, "It was 5 euros. bye")
    assert t.reward == 1.1 and len(t.sequences) == 1
    assert t.messages[2]["content"].replace("\n", "") == BOTH
    assert [m["content"] for m in t.messages if m["role"] == "tool"] == ["5 euros", "sold"]


def test_a_program_that_must_call_a_tool_does_so_in_the_models_format() -> None:
    model = BY_NAME["qwen3-coder"]
    tokenizer = model.tokenizer(model.template())
    rest = "<parameter=item>\nmug\n</parameter>\n</function>\n</tool_call>"
    engine = ScriptEngine(Renderer(tokenizer, schemas_of(Shop)), [rest])

    async def agent(client: Any, task: Any) -> str:
        choice = {"type": "function", "function": {"name": "sell"}}
        ask = partial(client.chat.completions.create, model="policy", messages=task.messages)
        answer = await ask(tools=task.tools, tool_choice=choice)
        (made,) = answer.choices[0].message.tool_calls
        assert (made.function.name, made.function.arguments) == ("sell", '{"item": "mug"}')
        return "bye"

    policy: Any = SimpleNamespace(tokenizer=tokenizer)
    t = asyncio.run(host(policy, engine, agent))
    assert tokenizer.decode(engine.asked[0]).endswith("<function=sell>\n")
    (sequence,) = t.sequences
    sampled = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
    assert tokenizer.decode(sampled) == rest + "<|im_end|>"
