"""Answers that a client wants by a schema: held to it, recorded, and trained on exactly."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import jsonschema
import openai
import pytest
from cases import slow_but
from hosted import host, script

from art_cli.chat.render import Renderer
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.rollout.agents.function import Task
from art_cli.training.algorithm.advantage import set_advantages
from art_cli.training.trainers.grpo import GRPOTrainer
from art_cli.types import Trajectory, TrajectoryGroup

SAMPLING = SamplingConfig(max_tokens=160, temperature=0.9)
ORDER = {
    "type": "object",
    "properties": {
        "item": {"enum": ["mug", "jug", "plate"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["item", "count"],
    "additionalProperties": False,
}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "order", "schema": schema}}


def ask(client: Any, task: Task, **more: Any) -> Any:
    return client.chat.completions.create(model="any", messages=task.messages, **more)


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function, and the embedded engine."""
    policy = make_policy()

    def play(agent: Any, seed: int = 0) -> Trajectory:
        stop_ids = Renderer(policy.tokenizer).stop_ids
        engine = TransformersEngine(policy, EngineConfig(), SAMPLING, stop_ids)
        return asyncio.run(host(policy, engine, agent, seed=seed))

    play.policy = policy
    return play


def test_answers_meet_their_schema_and_are_trained_on_as_they_were_sampled(play: Any) -> None:
    """Also where a history is shortened, and where some turns are free."""

    async def agent(client: Any, task: Task) -> None:
        said: list[Any] = list(task.messages)
        for kind in (form(ORDER), None, {"type": "json_object"}, form(ORDER)):
            more = {"response_format": kind} if kind else {"max_tokens": 5}
            create = client.chat.completions.create
            choice = (await create(model="any", messages=said, **more)).choices[0]
            if kind == form(ORDER):
                assert choice.finish_reason == "stop"
                jsonschema.validate(json.loads(choice.message.content), ORDER)
            elif kind and choice.finish_reason == "stop":
                assert isinstance(json.loads(choice.message.content), dict)
            said.append({"role": "assistant", "content": choice.message.content})
            said.append({"role": "user", "content": "more"})
            if kind is None:
                said = list(task.messages)  # forgets

    trajectories = [play(agent, seed) for seed in range(4)]
    for n, t in enumerate(trajectories):
        assert t.error is None, t.error
        assert sum(len(s.constrained) for s in t.sequences) == 3
        for s in t.sequences:
            for part in s.constrained:
                trained = [s.mask[i] for i in range(part.begin, min(part.end, len(s.ids)))]
                glue = part.end - part.begin - sum(trained)
                assert trained and bool(glue) >= ('"mug"' in part.grammar)
        t.reward = float(n % 2)
    groups = [TrajectoryGroup(trajectories)]
    set_advantages(groups, "mean")
    metrics = GRPOTrainer(play.policy, TrainConfig(steps=1), SAMPLING).step(groups, 0)
    assert metrics["loss/logprob_gap"] < 1e-5 and abs(metrics["loss/ratio_max"] - 1) < 1e-4


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"not": {"type": "null"}}, "not supported: Unimplemented keys"),
        ({"type": "array", "minItems": 10**9}, "add up to more than"),
        ({"type": "string", "minLength": 9, "maxLength": 1}, "Unsatisfiable"),
    ],
)
def test_a_schema_that_is_not_supported_is_the_clients_mistake_and_costs_nothing(
    play: Any, schema: Any, what: str
) -> None:
    async def agent(client: Any, task: Task) -> None:
        with pytest.raises(openai.BadRequestError, match=what):
            await ask(client, task, response_format=form(schema))
        choice = (await ask(client, task, response_format=form(ORDER))).choices[0]
        jsonschema.validate(json.loads(choice.message.content), ORDER)

    trajectory = play(agent)
    assert trajectory.error is None and len(trajectory.sequences) == 1


def test_the_arguments_of_a_strict_tool_that_is_demanded_meet_its_schema(play: Any) -> None:
    function = {"name": "sell", "description": "Sell.", "strict": True, "parameters": ORDER}
    demanded = {"type": "function", "function": {"name": "sell"}}

    async def agent(client: Any, task: Task) -> None:
        tools = [{"type": "function", "function": function}]
        choice = (await ask(client, task, tools=tools, tool_choice=demanded)).choices[0]
        [call] = choice.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), ORDER)

    for seed in range(3):
        trajectory = play(agent, seed)
        assert trajectory.error is None and trajectory.sequences[0].constrained


SELL = {"name": "sell", "description": "Sell.", "parameters": ORDER}


async def asked_of(api: str, client: openai.AsyncOpenAI, messages: Any) -> tuple[str, list[Any]]:
    """Return the words and the calls of a turn; neither, where it was cut off."""
    if api == "chat":
        tools = [{"type": "function", "function": SELL}]
        create = client.chat.completions.create
        answer = await create(
            model="any", messages=messages, tools=tools, response_format=form(ORDER)
        )
        [choice] = answer.choices
        calls = choice.message.tool_calls or []
        ended, words = choice.finish_reason, choice.message.content
        found = [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        return ("", []) if ended == "length" else (words or "", found)
    if api == "responses":
        answer = await client.responses.create(
            model="any",
            input=messages,
            tools=[{"type": "function", **SELL}],
            text={"format": {"type": "json_schema", "name": "order", "schema": ORDER}},
        )
        calls = [each for each in answer.output if each.type == "function_call"]
        found = [(c.name, json.loads(c.arguments)) for c in calls]
        return ("", []) if answer.status == "incomplete" else (answer.output_text, found)
    said = [m for m in messages if m["role"] != "system"]
    async with anthropic.AsyncAnthropic(
        base_url=str(client.base_url).removesuffix("/v1/"), api_key=client.api_key
    ) as other:
        answer = await other.messages.create(
            model="any",
            max_tokens=160,
            messages=said,
            tools=[{"name": "sell", "description": "Sell.", "input_schema": ORDER}],
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": ORDER}}},
        )
    found = [(b.name, b.input) for b in answer.content if b.type == "tool_use"]
    words = "".join(b.text for b in answer.content if b.type == "text")
    return ("", []) if answer.stop_reason == "max_tokens" else (words, found)


@pytest.mark.parametrize("api", slow_but(("chat",), ("chat", "responses", "messages")))
def test_where_there_are_tools_a_turn_is_an_answer_a_call_or_cut_off(play: Any, api: str) -> None:
    seen: list[str] = []

    async def agent(client: Any, task: Task) -> None:
        for _ in range(6):
            words, calls = await asked_of(api, client, task.messages)
            seen.append("call" if calls else "answer" if words else "cut off")
            for name, arguments in calls:
                assert name == "sell"
                jsonschema.validate(arguments, ORDER)
            if words or calls:
                assert bool(words.strip()) != bool(calls)
            if words.strip():
                jsonschema.validate(json.loads(words), ORDER)

    trajectories = [play(agent, seed) for seed in range(5)]
    assert len(seen) == 30 and {"call", "answer"} <= set(seen), seen
    for n, t in enumerate(trajectories):
        assert t.error is None, t.error
        t.reward = float(n % 2)
    groups = [TrajectoryGroup(trajectories)]
    set_advantages(groups, "mean")
    metrics = GRPOTrainer(play.policy, TrainConfig(steps=1), SAMPLING).step(groups, 0)
    assert metrics["loss/logprob_gap"] < 1e-5 and abs(metrics["loss/ratio_max"] - 1) < 1e-4


def test_what_is_asked_for_is_passed_to_the_engine_alone_where_there_is_a_schema(
    make_policy: Any,
) -> None:
    async def agent(client: Any, task: Task) -> None:
        assert (await ask(client, task)).choices[0].message.content == "free"

    policy = make_policy()
    trajectory = asyncio.run(host(policy, script(policy, "free"), agent))
    assert trajectory.error is None and not trajectory.sequences[0].constrained
