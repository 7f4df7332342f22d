"""The endpoint where a library asks its model, and what the episodes that are open share."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from art_envs.adapters.endpoint import endpoint
from art_envs.adapters.shared import Shared

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}


async def say(headers: Any, messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    heard = f"{headers['X-Session-ID']}: {messages[-1].content}, {tools[0].name}"
    return {"role": "assistant", "content": heard, "tool_calls": [CALL]}


async def asked(path: str, body: dict[str, Any]) -> httpx.Response:
    async with endpoint(say) as url, httpx.AsyncClient(headers={"X-Session-ID": "7"}) as client:
        return await client.post(url + path, json=body)


def test_an_answer_is_the_same_whole_and_streamed() -> None:
    whole = asyncio.run(asked("/chat/completions", ASKED)).json()["choices"][0]
    lines = asyncio.run(asked("/chat/completions", {**ASKED, "stream": True})).text.split("\n\n")
    assert lines[1:] == ["data: [DONE]", ""]
    chunk = json.loads(lines[0].removeprefix("data: "))["choices"][0]
    assert whole["message"]["content"] == chunk["delta"]["content"] == "7: hi, add"
    assert whole["finish_reason"] == chunk["finish_reason"] == "tool_calls"
    assert chunk["delta"]["tool_calls"] == [{"index": 0, **CALL}]


def test_what_is_not_played_is_refused_with_a_sentence() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    refused = asyncio.run(asked("/chat/completions", {**ASKED, "messages": [image]}))
    assert refused.status_code == 400 and "text alone" in refused.json()["error"]["message"]
    refused = asyncio.run(asked("/responses", {}))
    assert refused.status_code == 400 and "asks responses" in refused.json()["error"]["message"]


def test_who_does_not_know_the_secret_gets_nothing() -> None:
    async def stranger() -> int:
        async with endpoint(say) as url, httpx.AsyncClient() as client:
            other = httpx.URL(url).copy_with(path="/guess/v1/chat/completions")
            return (await client.post(other, json=ASKED)).status_code

    assert asyncio.run(stranger()) == 404


def test_who_hangs_up_is_waited_for_no_more() -> None:
    async def hang_up() -> bool:
        left, came = asyncio.Event(), asyncio.Event()

        async def waits(*_: Any) -> dict[str, Any]:
            came.set()
            try:
                return await asyncio.Future()
            finally:
                left.set()

        async with endpoint(waits) as url, httpx.AsyncClient() as client:
            asking = asyncio.ensure_future(client.post(f"{url}/chat/completions", json=ASKED))
            await came.wait()
            asking.cancel()
            return await left.wait()

    assert asyncio.run(hang_up())


class Counted:
    """A context that says what happens to it."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        self.log.append("entered")
        yield
        await asyncio.sleep(0)
        self.log.append("left")


def test_it_is_up_from_the_first_to_the_last_user_and_once_at_a_time() -> None:
    async def use(shared: Shared, turns: int) -> None:
        async with shared.used():
            for _ in range(turns):
                await asyncio.sleep(0)

    async def play() -> list[str]:
        counted = Counted()
        shared = Shared(counted.up)
        await asyncio.gather(use(shared, 3), use(shared, 9))
        assert counted.log == ["entered", "left"]
        last = asyncio.ensure_future(use(shared, 0))
        while counted.log.count("entered") < 2:
            await asyncio.sleep(0)
        await asyncio.gather(last, use(shared, 1))  # while it is being left, say
        return counted.log

    log = asyncio.run(play())
    assert log == ["entered", "left"] * (len(log) // 2)


def test_what_cannot_be_entered_fails_each_user() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await asyncio.sleep(0)
        raise ValueError("no port")
        yield

    async def play() -> list[Any]:
        async def use() -> None:
            async with shared.used():
                raise AssertionError

        shared = Shared(broken)
        return await asyncio.gather(use(), use(), return_exceptions=True)

    assert [repr(e) for e in asyncio.run(play())] == ["ValueError('no port')"] * 2
