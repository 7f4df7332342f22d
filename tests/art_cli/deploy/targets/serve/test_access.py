"""Who may use a server of one's own, and what its failures come to."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from aiohttp import web

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.deploy.targets.serve.access import Access
from art_cli.deploy.targets.serve.asgi import Checked
from art_cli.deploy.targets.serve.chat_server import ChatServer

KEY = {"Authorization": "Bearer right"}
USER = {"role": "user", "content": "hi"}
BODY = {"model": "m", "messages": [USER], "max_tokens": 2}
LOCAL = Access("right", "127.0.0.1")
OPEN = Access("right", "0.0.0.0")
BY_NAME = Access("right", "localhost")
BOX = Access("right", "box.lan")  # a server that other machines reach


def serve(policy: Any, asks: Callable[[httpx.AsyncClient, Any], Awaitable[None]]) -> None:
    """Serve a policy on loopback while `asks` asks it."""

    async def main() -> None:
        server = ChatServer(policy, "m", EngineConfig(max_model_len=512), SamplingConfig())
        runner = web.AppRunner(server.app(LOCAL), access_log=None, auto_decompress=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
                await asks(http, server)
        finally:
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("access", "headers", "status"),
    [
        (LOCAL, KEY | {"Host": "127.0.0.1:8000"}, None),
        (LOCAL, KEY | {"Host": "localhost:9000"}, None),
        (LOCAL, KEY | {"Host": "[::1]:8000"}, None),
        (LOCAL, KEY | {"Host": "LOCALHOST"}, None),
        (LOCAL, KEY | {"Host": "evil.example:8000"}, 403),
        (LOCAL, KEY | {"Host": "localhost.evil.example"}, 403),
        (LOCAL, KEY | {"Host": "evil@localhost.example"}, 403),
        (LOCAL, KEY | {"Host": "10.0.0.7:8000"}, 403),
        (LOCAL, KEY | {"Host": ""}, 403),
        (LOCAL, KEY | {"Host": "[::1"}, 403),
        (LOCAL, KEY, 403),
        (LOCAL, KEY | {"Host": "localhost:8000", "Origin": "http://localhost:8000"}, None),
        (LOCAL, KEY | {"Host": "localhost:8000", "Origin": "http://localhost:3000"}, 403),
        (LOCAL, KEY | {"Host": "localhost:8000", "Origin": "https://evil.example"}, 403),
        (LOCAL, KEY | {"Host": "localhost:8000", "Origin": "null"}, 403),
        (LOCAL, KEY | {"Host": "localhost:8000", "Origin": ""}, 403),
        (LOCAL, {"Host": "localhost:8000"}, 401),
        (LOCAL, {"Host": "localhost:8000", "Authorization": "Bearer wrong"}, 401),
        (LOCAL, {"Host": "localhost:8000", "Authorization": "Bearer right "}, 401),
        (LOCAL, {"Host": "localhost:8000", "Authorization": "Bearer \udcff"}, 401),
        (LOCAL, {"Host": "localhost:8000", "Authorization": "right"}, 401),
        (LOCAL, {"Host": "localhost:8000", "X-Api-Key": "right"}, None),
        (LOCAL, {"Host": "localhost:8000", "X-Api-Key": "wrong"}, 401),
        (OPEN, KEY | {"Host": "10.0.0.7:8000"}, None),
        (OPEN, KEY | {"Host": "evil.example:8000"}, 403),
        (OPEN, {"Host": "10.0.0.7:8000"}, 401),
        (OPEN, KEY | {"Host": socket.gethostname().upper()}, None),
        (LOCAL, KEY | {"Host": f"{socket.gethostname()}.:8000"}, 403),
        (LOCAL, KEY | {"Host": "0.0.0.0:8000"}, 403),
        (LOCAL, KEY | {"Host": "127.0.0.2:8000"}, None),
        (BY_NAME, KEY | {"Host": "127.0.0.1:8000"}, None),
        (BY_NAME, KEY | {"Host": "10.0.0.7:8000"}, 403),
        (BY_NAME, KEY | {"Host": f"not-{socket.gethostname()}"}, 403),
        (Access("right", "::1"), KEY | {"Host": "10.0.0.7:8000"}, 403),
        (BOX, KEY | {"Host": "box.lan:8000"}, None),
        (BOX, KEY | {"Host": "BOX.lan"}, None),
        (BOX, KEY | {"Host": "10.0.0.7"}, None),
        (BOX, KEY | {"Host": "box.lan.evil.example"}, 403),
    ],
)
def test_who_is_let_in(access: Access, headers: dict[str, str], status: int | None) -> None:
    """By both servers: aiohttp's, and the ASGI application that vLLM is."""
    lower = {name.lower(): value for name, value in headers.items()}
    refused = access.refusal("/v1/models", lower)
    assert (refused and refused[0]) == status
    health = access.refusal("/health", lower)
    assert (health and health[0]) == (status if status == 403 else None)


def test_a_server_on_loopback_is_not_called_by_the_name_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That name may be looked up elsewhere, and then lead here."""
    monkeypatch.setattr("socket.gethostname", lambda: "desk")
    headers = {"host": "desk:8000", "authorization": "Bearer right"}
    allowed = {a.host for a in (LOCAL, OPEN, BY_NAME, BOX) if not a.refusal("/v1/models", headers)}
    assert allowed == {OPEN.host, BOX.host}


def test_vllm_is_asked_only_what_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ART_SERVE_KEY", "right")
    monkeypatch.setenv("ART_SERVE_HOST", "127.0.0.1")
    asked = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    async def main() -> None:
        transport = httpx.ASGITransport(Checked(app))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            assert (await http.post("/invocations")).status_code == 401
            assert (await http.post("/invocations", headers=KEY)).status_code == 200
            evil = KEY | {"Host": "evil.example"}
            answer = await http.get("/v1/models", headers=evil)
            assert answer.status_code == 403 and "evil.example" in answer.json()["error"]["message"]
            assert (await http.get("/health")).status_code == 200

    asyncio.run(main())
    assert asked == ["/invocations", "/health"]


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"stop": "\ud800"}, 400),
        ({"messages": [USER | {"content": "\udfff"}]}, 400),
        ({"messages": [USER | {"content": "red " * 10**6}]}, 400),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "description": "\ud800"}}]},
            400,
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 7}}]}, None),
        ({"temperature": 0.1, "top_p": 1e-300}, 200),
        ({"temperature": 1e-300}, 200),
        ({"temperature": 1e-20, "top_p": 1e-9}, 200),
        ({"seed": 10**300}, None),
        ({"model": "other"}, 200),
    ],
)
def test_a_request_that_fails_is_the_only_one(
    make_policy: Any, wrong: dict[str, Any], status: int | None
) -> None:
    async def asks(http: httpx.AsyncClient, server: Any) -> None:
        body = json.dumps(BODY | wrong)  # httpx would not send half a surrogate pair
        answer = await http.post("/v1/chat/completions", content=body, headers=KEY)
        assert status is None or answer.status_code == status
        assert (await http.get("/health")).status_code == 200
        for more in ({}, {"temperature": 0.5}, {"stop": "a"}):
            answer = await http.post("/v1/chat/completions", json=BODY | more, headers=KEY)
            assert answer.status_code == 200

    serve(make_policy(), asks)


@pytest.mark.parametrize("stream", [False, True])
def test_health_says_when_the_engine_is_dead_and_when_it_is_not_any_more(
    make_policy: Any, stream: bool
) -> None:
    policy = make_policy()

    async def asks(http: httpx.AsyncClient, server: Any) -> None:
        body, embedding = BODY | {"stream": stream}, policy._decoder.embed_tokens
        assert (await http.get("/health")).status_code == 200
        policy._decoder.embed_tokens = None
        answer = await http.post("/v1/chat/completions", json=body, headers=KEY)
        assert answer.status_code == 503 and "the engine failed" in answer.text
        answer = await http.get("/health")
        assert answer.status_code == 503 and "the engine failed" in answer.json()["error"]
        policy._decoder.embed_tokens = embedding
        assert (await http.get("/health")).status_code == 200
        answer = await http.post("/v1/chat/completions", json=body, headers=KEY)
        assert answer.status_code == 200

    serve(policy, asks)


def test_many_ways_of_sampling_at_once_are_all_answered(make_policy: Any) -> None:
    async def asks(http: httpx.AsyncClient, server: Any) -> None:
        bodies = [BODY | {"temperature": 0.1 * n, "max_tokens": 20} for n in range(1, 13)]
        answers = await asyncio.gather(
            *(http.post("/v1/chat/completions", json=body, headers=KEY) for body in bodies)
        )
        assert {answer.status_code for answer in answers} == {200}
        assert len(server._engines) <= 8

    serve(make_policy(), asks)
