"""What a client of OpenAI's gets from the gateway, and what of it is kept to train on."""

import asyncio
import json
from typing import Any

import openai
import pytest
import torch
from hosted import Cut, host, script

from art_cli.chat.render import Renderer
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.rollout.agents.function import Task
from art_cli.training.algorithm.logprobs import chosen_logprobs
from art_cli.types import Trajectory

CALL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
USER = {"role": "user", "content": "hello"}


def ask(client: Any, task: Task, **more: Any) -> Any:
    return client.chat.completions.create(model="any", messages=task.messages, **more)


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function; the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any, **more: Any) -> Trajectory:
        play.engine = script(policy, *texts)
        return asyncio.run(host(policy, play.engine, agent, **more))

    play.policy = policy
    return play


def test_a_turn_is_answered_and_kept_token_by_token(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await ask(client, task)
        assert answer.choices[0].message.content == "hello there"
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens == len(play.engine.renderer.encode("hello there")) + 1

    trajectory = play(agent, "hello there")
    [sequence] = trajectory.sequences
    said = play.policy.tokenizer.decode(sequence.ids)
    assert said.endswith("I want a mug.<|im_end|>\n<|im_start|>assistant\nhello there<|im_end|>")
    assert sequence.num_sampled == sum(sequence.mask[-20:]) and sequence.mask[-1] == 1
    assert trajectory.policy_versions == [3] and trajectory.stop_reason == "env"
    assert trajectory.error is None and trajectory.reward == pytest.approx(0.1)  # it heard that


def test_a_call_that_extends_the_last_one_goes_on_in_its_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        first = (await ask(client, task, tools=task.tools)).choices[0]
        assert first.finish_reason == "tool_calls" and first.message.content is None
        [call] = first.message.tool_calls
        result = await task.call_tool(call.function.name, json.loads(call.function.arguments))
        task.messages.append(first.message.model_dump(exclude_none=True))
        task.messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        assert (await ask(client, task, tools=task.tools)).choices[0].message.content == "bye"

    trajectory = play(agent, CALL, "bye")
    [sequence] = trajectory.sequences
    first, second = play.engine.asked
    assert second[: len(first)] == first and sequence.ids[: len(second)] == second
    assert "<|im_start|>tool\nsold<|im_end|>" in play.policy.tokenizer.decode(second)
    roles = [m["role"] for m in trajectory.messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert trajectory.messages[2]["tool_calls"] == [{"name": "sell", "arguments": {"item": "mug"}}]
    assert trajectory.messages[3]["name"] == "sell" and trajectory.reward == pytest.approx(1.1)


def test_a_turn_that_was_cut_off_calls_nothing(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = (await ask(client, task, tools=task.tools)).choices[0]
        assert (answer.finish_reason, answer.message.tool_calls) == ("length", None)
        assert answer.message.content == CALL

    assert play(agent, Cut(CALL)).truncated


def test_another_history_begins_another_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await ask(client, task)
        await client.chat.completions.create(model="m", messages=[USER])

    trajectory = play(agent, "one", "two")
    assert [s.num_sampled > 0 for s in trajectory.sequences] == [True, True]
    said = [[m["content"] for m in conversation] for conversation in trajectory.conversations]
    assert said == [["You sell.", "I want a mug.", "one"], ["hello", "two"]]


def test_a_history_that_was_rewritten_begins_another_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await ask(client, task)
        task.messages += [{"role": "assistant", "content": "I said this"}, USER]
        await ask(client, task)

    trajectory = play(agent, "one", "two")
    assert len(trajectory.sequences) == 2
    second = trajectory.sequences[1]
    sampled = [i for i, m in zip(second.ids, second.mask, strict=True) if m]
    assert play.policy.tokenizer.decode(sampled) == "two<|im_end|>"  # what it was told it said: not


def test_two_calls_at_the_same_time_do_not_mix(play: Any) -> None:
    both = asyncio.Event()

    async def slow() -> str:
        await both.wait()
        return "slow"

    async def agent(client: Any, task: Task) -> None:
        first = asyncio.ensure_future(ask(client, task))
        while not play.engine.asked:
            await asyncio.sleep(0.01)
        second = await ask(client, task)
        both.set()
        assert second.choices[0].message.content == "quick"
        assert (await first).choices[0].message.content == "slow"

    trajectory = play(agent, slow, "quick")
    assert len(trajectory.sequences) == 2 and len(trajectory.policy_versions) == 2


def test_a_stream_says_the_same_as_an_answer(play: Any) -> None:
    text = f"I will sell it, gladly, with all my heart. {CALL}"

    async def agent(client: Any, task: Task) -> None:
        whole = (await ask(client, task, tools=task.tools)).choices[0].message
        content, calls, usage = "", {}, None
        stream = await ask(
            client, task, tools=task.tools, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                content += choice.delta.content or ""
                for part in choice.delta.tool_calls or []:
                    calls.setdefault(part.index, ["", ""])
                    calls[part.index][0] += part.function.name or ""
                    calls[part.index][1] += part.function.arguments or ""
                reason = choice.finish_reason
        assert content == whole.content and reason == "tool_calls"
        function = whole.tool_calls[0].function
        assert calls == {0: [function.name, function.arguments]} and usage.total_tokens > 20

    assert play(agent, text, text).error is None


def test_the_openai_clients_own_stream_helper_understands_it(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        async with client.chat.completions.stream(model="m", messages=task.messages) as stream:
            final = await stream.get_final_completion()
        assert final.choices[0].message.content == "hello" * 9

    play(agent, "hello" * 9)


def test_logprobs_are_those_that_are_trained_on(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        choice = (await ask(client, task, logprobs=True)).choices[0]
        assert "".join(t.token for t in choice.logprobs.content) == "hello"
        assert {t.logprob for t in choice.logprobs.content} == {-0.5}

    assert play(agent, "hello").error is None


def test_a_stop_text_ends_the_turn_and_is_not_shown(play: Any, make_policy: Any) -> None:
    policy = make_policy()
    renderer = Renderer(policy.tokenizer)
    sampling = SamplingConfig(max_tokens=400)
    engine = TransformersEngine(policy, EngineConfig(), sampling, renderer.stop_ids)

    async def agent(client: Any, task: Task) -> None:
        choice = (await ask(client, task, stop=["e", "a"], max_tokens=300)).choices[0]
        assert choice.finish_reason == "stop" and not set("ea") & set(choice.message.content)

    trajectory = asyncio.run(host(policy, engine, agent))
    [s] = trajectory.sequences
    sampled = policy.tokenizer.decode([i for i, m in zip(s.ids, s.mask, strict=True) if m])
    assert set("ea") & set(sampled) and trajectory.error is None


def test_limits_of_a_request_reach_the_engine(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await ask(client, task, max_tokens=7, stop="x", temperature=0.3, seed=3, n=1)

    play(agent, "a")
    assert play.engine.limits == [(7, ("x",))]


@pytest.mark.parametrize(
    ("choice", "begins"),
    [
        ("required", '<tool_call>{"name": "'),
        (
            {"type": "function", "function": {"name": "price"}},
            '<tool_call>{"name": "price", "arguments": ',
        ),
    ],
)
def test_a_forced_call_is_begun_for_the_policy_and_not_trained(
    play: Any, choice: Any, begins: str
) -> None:
    rest = CALL.replace("sell", "price").removeprefix(begins)

    async def agent(client: Any, task: Task) -> None:
        answer = await ask(client, task, tools=task.tools, tool_choice=choice)
        assert answer.choices[0].message.tool_calls[0].function.name == "price"
        task.messages += [answer.choices[0].message.model_dump(exclude_none=True), USER]
        await ask(client, task, tools=task.tools)

    trajectory = play(agent, rest, "ok")
    [s] = trajectory.sequences  # the second call went on in it
    sampled = [i for i, m in zip(s.ids, s.mask, strict=True) if m]
    assert play.policy.tokenizer.decode(sampled) == f"{rest}<|im_end|>ok<|im_end|>"
    assert begins + rest in play.policy.tokenizer.decode(s.ids)


def test_with_tool_choice_none_no_tool_is_shown_or_called(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await ask(client, task, tools=task.tools, tool_choice="none")
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].message.content == CALL

    play(agent, CALL)
    assert "<tools>" not in play.policy.tokenizer.decode(play.engine.asked[0])


def test_thinking_is_given_apart_and_kept_in_the_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        message = (await ask(client, task)).choices[0].message
        assert message.content == "yes" and message.reasoning_content == "hm"

    [s] = play(agent, "<think>hm</think>yes").sequences
    assert "<think>hm</think>yes" in play.policy.tokenizer.decode(s.ids)


def test_the_models_list_names_the_policy(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        assert [m.id for m in (await client.models.list()).data] == ["policy"]
        assert (await client.models.retrieve("gpt-5")).id == "gpt-5"
        await ask(client, task)

    assert play(agent, "a").error is None


def test_captured_ids_are_what_the_engine_sampled_and_read(play: Any, make_policy: Any) -> None:
    policy = make_policy()
    renderer = Renderer(policy.tokenizer)
    engine = TransformersEngine(
        policy, EngineConfig(), SamplingConfig(max_tokens=12), renderer.stop_ids
    )

    async def agent(client: Any, task: Task) -> None:
        for _ in range(3):
            message = (await ask(client, task)).choices[0].message
            task.messages += [message.model_dump(exclude_none=True), USER]

    trajectory = asyncio.run(host(policy, engine, agent))
    [s] = trajectory.sequences
    ids = torch.tensor([s.ids])
    with torch.no_grad():
        hidden = policy.hidden(ids, torch.arange(len(s.ids))[None])[0, :-1]
    plain = chosen_logprobs(hidden, policy.head, ids[0, 1:], 1.0).tolist()
    for i, m in enumerate(s.mask):
        if m:
            assert s.engine_logprobs[i] == pytest.approx(plain[i - 1], abs=1e-5)
    assert sum(s.mask) >= 3 and trajectory.policy_versions == [0, 0, 0]


def test_several_turns_behind_one_prompt_are_each_a_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        task.messages.append({"role": "assistant", "content": "yes?"})
        task.messages.append(USER)
        first = (await ask(client, task)).choices[0].message
        task.messages += [first.model_dump(exclude_none=True), USER]
        answer = await ask(client, task, n=3)
        assert [c.message.content for c in answer.choices] == ["a", "b", "c"]
        assert [c.index for c in answer.choices] == [0, 1, 2]
        assert answer.usage.completion_tokens == 6
        task.messages += [answer.choices[1].message.model_dump(exclude_none=True), USER]
        await ask(client, task)

    trajectory = play(agent, "one", "a", "b", "c", "two")
    decode = play.policy.tokenizer.decode
    assert [
        decode([i for i, m in zip(s.ids, s.mask, strict=True) if m]) for s in trajectory.sequences
    ] == ["one<|im_end|>a<|im_end|>", "b<|im_end|>two<|im_end|>", "c<|im_end|>"]
    assert play.engine.asked[1] == play.engine.asked[2] == play.engine.asked[3]
    assert play.engine.asked[4][: len(play.engine.asked[1])] == play.engine.asked[1]
    assert len(trajectory.policy_versions) == 5 and play.engine.num_open == 0


@pytest.mark.parametrize("turn", [f"ok\n{CALL}\n{CALL}", Cut(f"ok\n{CALL}\n{CALL[:30]}")])
def test_a_turn_that_may_hold_one_call_ends_behind_it(play: Any, turn: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        answer = await ask(client, task, tools=task.tools, parallel_tool_calls=False)
        [call] = answer.choices[0].message.tool_calls
        assert answer.choices[0].message.content == "ok\n"
        assert answer.choices[0].finish_reason == "tool_calls"
        task.messages += [
            answer.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "sold"},
        ]
        await ask(client, task, tools=task.tools)

    trajectory = play(agent, turn, "bye")
    [s] = trajectory.sequences
    sampled = [i for i, m in zip(s.ids, s.mask, strict=True) if m]
    assert play.policy.tokenizer.decode(sampled) == f"ok\n{CALL}bye<|im_end|>"
    assert f"{CALL}<|im_end|>\n<|im_start|>tool\nsold" in play.policy.tokenizer.decode(s.ids)


def test_a_turn_may_be_begun_by_its_client(play: Any) -> None:
    begun = {"role": "assistant", "content": '{"price": '}

    async def agent(client: Any, task: Task) -> None:
        task.messages.append(begun)
        first = (await ask(client, task)).choices[0].message
        assert first.content == "3}"
        task.messages[-1] = {"role": "assistant", "content": '{"price": 3}'}
        task.messages.append(USER)
        await ask(client, task)

    [s] = play(agent, "3}", "ok").sequences
    sampled = [i for i, m in zip(s.ids, s.mask, strict=True) if m]
    assert play.policy.tokenizer.decode(sampled) == "3}<|im_end|>ok<|im_end|>"
    assert '<|im_start|>assistant\n{"price": 3}<|im_end|>' in play.policy.tokenizer.decode(s.ids)


def test_only_the_allowed_tools_are_shown(play: Any) -> None:
    named = {"type": "function", "function": {"name": "price"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}

    async def agent(client: Any, task: Task) -> None:
        await ask(client, task, tools=task.tools, tool_choice=allowed)

    play(agent, "ok")
    read = play.policy.tokenizer.decode(play.engine.asked[0])
    assert "price item" in read and "sell item" not in read


def test_thinking_that_comes_back_is_read_where_the_history_is_a_new_one(play: Any) -> None:
    thought = {"role": "assistant", "content": "yes", "reasoning_content": "hm"}

    async def agent(client: Any, task: Task) -> None:
        message = (await ask(client, task)).choices[0].message
        task.messages += [message.model_dump(exclude_none=True), USER]
        await ask(client, task)
        await client.chat.completions.create(model="m", messages=[USER, thought, USER])

    trajectory = play(agent, "<think>hm</think>yes", "a", "b")
    assert len(trajectory.sequences) == 2
    assert "<think>\nhm\n</think>\n\nyes" in play.policy.tokenizer.decode(play.engine.asked[2])


@pytest.mark.parametrize("path", ["/chat/completions", "//v1//chat/completions/", "/v1/v1/"])
def test_a_base_address_may_be_written_in_many_ways(play: Any, path: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        url = str(client.base_url).removesuffix("/v1/")
        body = {"messages": task.messages}
        answer = await client._client.post(url + path, json=body)
        known = path.rstrip("/").endswith("completions")
        assert answer.status_code == (200 if known else 404)
        if not known:
            assert "there are POST /v1/chat/completions" in answer.json()["error"]["message"]
            await ask(client, task)

    play(agent, "a")


def test_the_likeliest_tokens_hold_the_one_that_was_sampled(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        choice = (await ask(client, task, logprobs=True, top_logprobs=2)).choices[0]
        for token in choice.logprobs.content:
            assert token.token in [t.token for t in token.top_logprobs]

    play(agent, "hello")


def test_a_clients_own_small_limit_is_no_truncation(play: Any) -> None:
    async def small(client: Any, task: Task) -> None:
        num = len(play.engine.renderer.encode("a title"))
        answer = await ask(client, task, max_tokens=num)
        assert answer.choices[0].finish_reason == "length"

    async def own(client: Any, task: Task) -> None:
        await ask(client, task, max_tokens=4000)

    async def none(client: Any, task: Task) -> None:
        await ask(client, task)

    assert not play(small, Cut("a title")).truncated
    assert play(own, Cut("a title")).truncated and play(none, Cut("a title")).truncated
    num = len(play.engine.renderer.encode("a title"))
    assert play(small, Cut("a title"), max_tokens=num).truncated  # the run's limit is the same


def test_keys_that_are_null_are_not_there(play: Any) -> None:
    function = {"name": "f", "description": None, "parameters": None, "strict": None}

    async def agent(client: Any, task: Task) -> None:
        tools = [{"type": "function", "function": function}]
        more = {"stop": None, "tool_choice": None, "n": None, "max_tokens": None, "logprobs": None}
        await ask(client, task, tools=tools, **more)
        user = {"role": "user", "content": "hi", "name": None, "tool_calls": None}
        await client.chat.completions.create(model="m", messages=[user])

    assert play(agent, "a", "bye").error is None


def test_half_an_emoji_is_the_clients_mistake(play: Any) -> None:
    async def agent(client: Any, task: Task) -> str:
        bad = client.copy(default_headers={"Content-Type": "application/json"})
        for text in ('"\\ud83d"', '"\\ud83d hi"'):
            body = f'{{"messages": [{{"role": "user", "content": {text}}}]}}'.encode()
            with pytest.raises(openai.BadRequestError, match="half a surrogate pair"):
                await bad.post("/chat/completions", cast_to=object, content=body)
        await ask(client, task)
        return "bye \ud83d"

    trajectory = play(agent, "a")
    assert trajectory.error is None and trajectory.steps[0].said == "bye ?"


@pytest.mark.parametrize(
    ("sent", "goes_on"),
    [
        ({"content": [{"type": "text", "text": "One moment."}]}, True),
        ({"content": "\n One moment. "}, True),
        ({"arguments": '{"b":2,  "a": 1}'}, True),
        ({"reasoning_content": None}, True),
        ({"content": "One minute."}, False),
        ({"arguments": '{"a": 1, "b": 3}'}, False),
    ],
)
def test_a_history_forks_only_where_it_says_something_else(
    play: Any, sent: dict[str, Any], goes_on: bool
) -> None:
    call = '<tool_call>{"name": "sell", "arguments": {"a": 1, "b": 2}}</tool_call>'

    async def agent(client: Any, task: Task) -> None:
        first = (await ask(client, task, tools=task.tools)).choices[0].message
        message = first.model_dump(exclude_none=True)
        message["tool_calls"][0]["function"] |= {k: v for k, v in sent.items() if k == "arguments"}
        task.messages.append(message | {k: v for k, v in sent.items() if k != "arguments"})
        id = message["tool_calls"][0]["id"]
        task.messages.append({"role": "tool", "tool_call_id": id, "content": "ok"})
        await ask(client, task, tools=task.tools)

    trajectory = play(agent, f"<think>hm</think>One moment. \n\n{call}", "bye")
    assert len(trajectory.sequences) == (1 if goes_on else 2)
    assert len([m for m in trajectory.messages if m["role"] == "assistant"]) == 2


@pytest.mark.parametrize("more", [{}, {"description": None}])
def test_a_tool_needs_no_description(play: Any, more: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        bare = {"type": "function", "function": {"name": "sell", "parameters": {}} | more}
        await ask(client, task, tools=[bare])

    play(agent, "a")
    assert "None" not in play.policy.tokenizer.decode(play.engine.asked[0])
