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

from art_cli.envs.base import tool
from art_cli.models.render import Renderer
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
bodies = st.one_of(
    st.fixed_dictionaries({"messages": messages}, optional=dict.fromkeys(KEYS, any_json)),
    st.fixed_dictionaries({"messages": messages}, optional={k: st.just(KEYS[k]) for k in KEYS}),
    any_json,
).map(json.dumps)
chats = bodies.flatmap(lambda text: st.just(text) | broken(text)) | any_json_text
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
                with httpx.Client(timeout=60, trust_env=False) as http:
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
    [("/v1/chat/completions", chats, 400), ("/mcp", rpcs, 300)],
    ids=["chat", "mcp"],
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
            assert answer.status_code in (200, 202, 400), answer.text
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
