"""What a client of OpenAI's older completions gets, and what of it is kept to train on."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from hosted import host, script
from openai.types import Completion

from art_cli.rollout.agents.function import Task
from art_cli.types import Trajectory


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function; the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any) -> Trajectory:
        play.engine = script(policy, *texts)
        return asyncio.run(host(policy, play.engine, agent))

    play.policy = policy
    return play


def spoken(play: Any, trajectory: Trajectory) -> list[tuple[str, str]]:
    """Return all of each sequence as text, and what of it was sampled."""
    decode = play.policy.tokenizer.decode
    return [
        (decode(s.ids), decode([i for i, m in zip(s.ids, s.mask, strict=True) if m]))
        for s in trajectory.sequences
    ]


def test_a_text_that_grows_is_one_sequence(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        text = "Q: which?\nA:"
        first = await client.completions.create(model="m", prompt=text, stop=["\nQ:"])
        assert (first.choices[0].text, first.choices[0].finish_reason) == (" a mug", "stop")
        assert first.usage.prompt_tokens == len(play.engine.asked[0])
        text += f"{first.choices[0].text}\nQ:"  # what stopped it was sampled
        await client.completions.create(model="m", prompt=f"{text} why?\nA:", max_tokens=7)
        with_end = f"{text} why?\nA: so<|im_end|>\n<|im_start|>user\n"
        await client.completions.create(model="m", prompt=with_end)
        await client.completions.create(model="m", prompt=f"{text} why?\nA: so and")

    play.engine = script(play.policy)
    trajectory = play(agent, " a mug\nQ:", " so", "x", "y")
    assert play.engine.limits == [(16, ("\nQ:",)), (7, ()), (16, ()), (16, ())]
    one, *others = spoken(play, trajectory)
    assert one[0] == "Q: which?\nA: a mug\nQ:<|im_end|>"
    assert [sampled for _, sampled in others] == [" so<|im_end|>x<|im_end|>", "y<|im_end|>"]
    assert sum(map(len, trajectory.conversations)) == 8


def test_tokens_are_gone_on_with_as_they_are(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        ids = play.policy.tokenizer.encode("hello", add_special_tokens=False)
        await client.completions.create(model="m", prompt=ids)
        assert play.engine.asked[-1] == ids
        more = [*ids, *play.policy.tokenizer.encode(" you<|im_end|>", add_special_tokens=False)]
        await client.completions.create(model="m", prompt=[[*more, ids[0]]])
        with pytest.raises(openai.BadRequestError, match="there is no token 1000000"):
            await client.completions.create(model="m", prompt=[10**6])

    [(_, sampled)] = spoken(play, play(agent, " you", "!"))
    assert sampled == " you<|im_end|>!<|im_end|>"


def test_several_and_their_logprobs_as_an_answer_and_as_a_stream(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        asked: Any = {"model": "m", "prompt": "hi", "n": 2, "logprobs": 1}
        whole = await client.completions.create(**asked)
        assert [c.text for c in whole.choices] == ["one", "two"]
        chosen = whole.choices[0].logprobs
        assert "".join(chosen.tokens) == "one" and {*chosen.token_logprobs} == {-0.5}
        assert chosen.top_logprobs[0] == {chosen.tokens[0]: -0.5} and chosen.text_offset[0] == 0
        texts, reasons, used = ["", ""], [], None
        stream = await client.completions.create(
            **asked, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            used = chunk.usage or used
            Completion.model_validate(chunk.model_dump(warnings=False))  # the client checks nothing
            for choice in chunk.choices:
                texts[choice.index] += choice.text
                reasons.append(choice.finish_reason)
        assert (texts, reasons, used) == (["one", "two"], ["stop", "stop"], whole.usage)

    assert len(play(agent, "one", "two", "one", "two").sequences) == 4


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"echo": True}, "the client has the prompt"),
        ({"suffix": "a"}, "ask for it in a chat"),
        ({"best_of": 3}, "choose among n"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": ""}, "it is empty"),
        ({"prompt": "no " * 3000}, "there is room for"),
    ],
)
def test_what_is_refused_says_what_to_do(play: Any, wrong: dict[str, Any], what: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        with pytest.raises(openai.BadRequestError, match=what):
            await client.completions.create(**{"model": "m", "prompt": "hi", **wrong})

    play(agent)
