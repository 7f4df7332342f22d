"""The env's tools over MCP. The official client is tried in tests/integration."""

import asyncio
from typing import Any

import httpx
import pytest
from hosted import Shop, host, script

from art_cli.envs.base import Done, Env
from art_cli.rollout.agents.function import Task
from art_cli.types import Trajectory


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function that gets `rpc(method, **params)`."""
    policy = make_policy()

    def play(agent: Any, env: type[Env] = Shop) -> Trajectory:
        async def function(client: Any, task: Task) -> None:
            url = str(client.base_url).removesuffix("v1/") + "mcp"
            async with httpx.AsyncClient(trust_env=False) as http:

                async def rpc(method: str, **params: Any) -> Any:
                    body = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
                    answer = (await http.post(url, json=body)).json()
                    assert answer["jsonrpc"] == "2.0" and answer["id"] == 5
                    return answer["result"] if "result" in answer else answer["error"]

                rpc.http, rpc.url = http, url  # type: ignore[attr-defined]
                await client.chat.completions.create(model="m", messages=task.messages)
                await agent(rpc)

        return asyncio.run(host(policy, script(policy, "hello"), function, env=env))

    return play


def text(result: Any) -> str:
    [part] = result["content"]
    return part["text"]


def test_the_greeting_names_a_version_that_both_know(play: Any) -> None:
    async def agent(rpc: Any) -> None:
        for asked, got in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
            result = await rpc("initialize", protocolVersion=asked, capabilities={}, clientInfo={})
            assert result["protocolVersion"] == got and "tools" in result["capabilities"]
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await rpc.http.post(rpc.url, json=note)).status_code == 202
        assert await rpc("ping") == {}
        for method in ("GET", "DELETE"):  # a stream of its own, the end of a session
            refused = await rpc.http.request(method, rpc.url)
            assert (refused.status_code, refused.headers["allow"]) == (405, "POST")

    play(agent)


def test_the_envs_tools_are_listed_with_one_to_speak(play: Any) -> None:
    async def agent(rpc: Any) -> None:
        tools = {t["name"]: t for t in (await rpc("tools/list"))["tools"]}
        assert list(tools) == ["price", "sell", "close_shop", "crash", "reply"]
        assert tools["sell"]["description"] == "Sell a thing."
        assert tools["sell"]["inputSchema"]["properties"] == {"item": {"type": "string"}}

    play(agent)


def test_calls_reach_the_env(play: Any) -> None:
    async def agent(rpc: Any) -> None:
        result = await rpc("tools/call", name="sell", arguments={"item": "mug"})
        assert text(result) == "sold" and result["isError"] is False
        result = await rpc("tools/call", name="sell", arguments={"item": "cup"})
        assert text(result) == "error: one thing only" and result["isError"] is True
        assert text(await rpc("tools/call", name="reply", arguments={"text": "so"})) == "and?"
        assert "over" in text(await rpc("tools/call", name="close_shop"))
        assert "over" in text(await rpc("tools/call", name="price", arguments={"item": "mug"}))

    trajectory = play(agent)
    assert trajectory.reward == pytest.approx(1.1) and trajectory.stop_reason == "env"


def test_bad_arguments_are_an_answer_to_the_agent(play: Any) -> None:
    async def agent(rpc: Any) -> None:
        result = await rpc("tools/call", name="sell", arguments={"thing": "mug"})
        assert "item: Field required" in text(result) and result["isError"]

    assert play(agent).reward == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 7}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 7}}', -32602),
    ],
)
def test_a_message_that_is_none_gets_an_error(play: Any, body: bytes, code: int) -> None:
    async def agent(rpc: Any) -> None:
        answer = (await rpc.http.post(rpc.url, content=body)).json()
        assert answer["error"]["code"] == code

    play(agent)


def test_an_env_that_hears_no_words_offers_no_reply(play: Any) -> None:
    class Mute(Shop):
        reply = Env.reply

    async def agent(rpc: Any) -> None:
        assert "reply" not in [t["name"] for t in (await rpc("tools/list"))["tools"]]

    assert isinstance(asyncio.run(Env.reply(None, "")), Done)  # type: ignore[arg-type]
    play(agent, Mute)
