"""Whatever a program sends: it gets a documented answer, and its siblings play on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import pytest
from fuzz import any_json, any_json_text, any_text, broken, fuzz
from hosted import SCENARIO, Shop, script
from hypothesis import given
from hypothesis import strategies as st

from art_cli.chat.render import Renderer
from art_cli.envs.base import tool
from art_cli.rollout.agents.function import FunctionRunner, Task
from art_cli.rollout.agents.hosted import HostedAgents
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.rollout import rollout
from art_cli.runs.trajectories import read_rows, write_rows
from art_cli.types import Trajectory, TrajectoryGroup

ROOM = 10**6  # tokens: no message is too long, which would end the episode
MESSAGE = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "sell", "arguments": "{}"}}
KEYS = {
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "tool_choice": "required",
    "stop": ["x"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 5,
    "logprobs": True,
    "temperature": 1.0,
    "seed": 3,
    "model": "m",
    "n": 2,
    "parallel_tool_calls": False,
}
messages = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(("user", "system"))}, optional={}),
        st.fixed_dictionaries({"role": st.just("user"), "content": any_text}),
        st.fixed_dictionaries({"role": st.just("tool"), "content": any_json}),
        st.builds(
            lambda a: {"role": "assistant", "tool_calls": [CALL | {"function": a}]},
            st.fixed_dictionaries({"name": any_text, "arguments": any_json_text | any_json}),
        ),
    ),
    max_size=4,
).map(lambda said: [*said, MESSAGE])


def bodies_of(needed: dict[str, Any], keys: dict[str, Any]) -> st.SearchStrategy[str]:
    """Requests with what they need, and of other keys good values or any; whole and broken."""
    return (
        st.one_of(
            st.fixed_dictionaries(needed, optional=dict.fromkeys(keys, any_json)),
            st.fixed_dictionaries(needed, optional={k: st.just(keys[k]) for k in keys}),
            any_json,
        )
        .map(json.dumps)
        .flatmap(lambda text: st.just(text) | broken(text))
        | any_json_text
    )


chats = bodies_of({"messages": messages}, KEYS)
part = st.fixed_dictionaries(
    {"type": st.sampled_from(("input_text", "output_text", "text")) | any_text, "text": any_text}
)
call = {"call_id": "c1", "id": "i", "name": "f", "arguments": "{}", "output": "3"}
items = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"type": st.sampled_from(("function_call", "function_call_output", "reasoning"))},
            optional={k: st.just(v) | any_json for k, v in call.items()}
            | {"summary": st.lists(part, max_size=2) | any_json, "encrypted_content": any_text},
        ),
        st.fixed_dictionaries(
            {"role": st.sampled_from(("user", "assistant", "developer", "robot"))},
            optional={"content": st.lists(part, max_size=3) | any_json, "type": any_json},
        ),
    ),
    max_size=4,
).map(lambda said: [*said, MESSAGE])
NAMED = {"type": "function", "name": "f"}
RESPONSES = {
    "instructions": "a",
    "tools": [NAMED | {"parameters": {}}],
    "tool_choice": NAMED,
    "parallel_tool_calls": False,
    "text": {"format": {"type": "text"}},
    "reasoning": {"summary": "auto"},
    "include": ["message.output_text.logprobs", "reasoning.encrypted_content"],
    "stream": True,
    "store": False,
    "max_output_tokens": 5,
    "metadata": {"a": "b"},
    "top_logprobs": 2,
}
responses = bodies_of({"input": items | any_text}, RESPONSES | {"previous_response_id": "resp_1"})
block = st.one_of(
    part,
    st.fixed_dictionaries(
        {"type": st.sampled_from(("tool_use", "tool_result", "thinking", "image")) | any_json},
        optional={
            "id": any_json,
            "tool_use_id": any_json,
            "name": any_text | any_json,
            "input": st.just({"a": 1}) | any_json,
            "content": any_text | st.lists(part, max_size=2) | any_json,
            "thinking": any_text | any_json,
            "is_error": any_json,
        },
    ),
)
turns = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(("user", "assistant", "system", "robot")),
            "content": any_text | st.lists(block, max_size=3) | any_json,
        }
    ),
    max_size=4,
).map(lambda said: [*said, MESSAGE])
TOOL = {"name": "f", "input_schema": {"type": "object"}}
MESSAGES = {
    "system": [{"type": "text", "text": "a"}],
    "tools": [TOOL],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "stop_sequences": ["x"],
    "stream": True,
}
blocks = bodies_of({"messages": turns, "max_tokens": st.just(5)}, MESSAGES)
PLAIN = {"n": 2, "stop": "x", "stream": True, "logprobs": 2, "max_tokens": 5, "echo": False}
prompts = st.one_of(any_text, st.lists(st.integers(-5, 100), max_size=5), any_json)
plain = bodies_of({"prompt": prompts}, PLAIN)
calls = st.one_of(
    st.fixed_dictionaries(
        {
            "jsonrpc": st.just("2.0"),
            "id": st.integers() | any_json,
            "method": st.sampled_from(("tools/call", "tools/list", "initialize", "ping"))
            | any_json,
            "params": st.one_of(
                any_json,
                st.fixed_dictionaries(
                    {
                        "name": st.sampled_from(("price", "reply", "echo")) | any_text,
                        "arguments": st.one_of(
                            any_json,
                            st.fixed_dictionaries({"item": any_json}),
                            st.fixed_dictionaries({"text": any_json}),
                        ),
                    }
                ),
            ),
        }
    ),
    any_json,
).map(json.dumps)
rpcs = calls.flatmap(lambda text: st.just(text) | broken(text))


class Open(Shop):
    """A shop that stays open, and says back what it hears."""

    max_turns = 10**6

    @tool()
    async def echo(self, item: Any) -> str:
        """Say it."""
        return str(item)

    async def reply(self, text: str) -> str:
        self.heard = [text]
        return text


Fuzz = Callable[[httpx.Client, str], None]


def beside_a_sibling(policy: Any, attack: Fuzz, seed: int = 0) -> list[Trajectory]:
    """Two episodes at one gateway: one attacks, in a thread; the other plays when it is through."""
    said = script(policy)
    said.texts = Endless()  # type: ignore[assignment]

    async def main() -> list[Trajectory]:
        gateway = Gateway(Served(said, partial(Renderer, policy.tokenizer), ROOM))
        await gateway.start()
        over = asyncio.Event()

        async def attacker(client: Any, task: Task) -> None:
            url = str(client.base_url).rstrip("/").removesuffix("/v1")
            try:
                with httpx.Client(timeout=300, trust_env=False) as http:
                    await asyncio.to_thread(attack, http, url)
                await client.chat.completions.create(model="m", messages=task.messages)
            finally:
                over.set()

        async def sibling(client: Any, task: Task) -> None:
            await over.wait()
            answer = await client.chat.completions.create(model="m", messages=task.messages)
            assert answer.choices[0].message.content == "hello"
            await task.call_tool("sell", {"item": "mug"})

        def play(agent: Any) -> Awaitable[Trajectory]:
            agents = HostedAgents(
                gateway=gateway,
                runner=FunctionRunner(agent),
                timeout=300,
                on_crash="score",
                turns=asyncio.Semaphore(4),
            )
            return rollout(Open, None, SCENARIO, agents.open(seed))

        try:
            return await asyncio.gather(play(attacker), play(sibling))
        finally:
            await gateway.close()

    return asyncio.run(main())


class Endless(list[str]):
    """Turns without end."""

    def pop(self, *_: Any) -> str:
        return "hello"


@pytest.mark.parametrize(
    ("path", "sent", "cases"),
    [
        ("/v1/chat/completions", chats, 400),
        ("/v1/responses", responses, 400),
        ("/v1/messages", blocks, 400),
        ("/v1/messages/count_tokens", blocks, 100),
        ("/v1/completions", plain, 200),
        ("/mcp", rpcs, 300),
    ],
    ids=["chat", "responses", "messages", "count", "completions", "mcp"],
)
def test_whatever_is_sent_gets_a_documented_answer(
    make_policy: Any, tmp_path: Any, path: str, sent: Any, cases: int
) -> None:
    statuses: set[int] = set()

    def attack(http: httpx.Client, url: str) -> None:
        @fuzz(cases)
        @given(sent)
        def send(text: str) -> None:
            body = text.encode(errors="surrogatepass")
            answer = http.post(url + path, content=body)
            statuses.add(answer.status_code)
            assert answer.status_code in (200, 202, 400, 404), answer.text
            if "text/event-stream" not in answer.headers.get("content-type", ""):
                answer.text.encode()
                assert answer.status_code == 202 or isinstance(answer.json(), dict)

        send()

    attacked, sibling = beside_a_sibling(make_policy(), attack)
    assert not attacked.metrics["crashed"], attacked.logs
    assert attacked.stop_reason == "env" and attacked.error is None
    assert sibling.reward == 1.1 and sibling.error is None
    assert {200, 400} <= statuses if path != "/mcp" else 200 in statuses
    write_rows(tmp_path / "rows.gz", 0, "train", [TrajectoryGroup([attacked, sibling])])
    json.dumps(read_rows(tmp_path / "rows.gz"), ensure_ascii=False).encode()
