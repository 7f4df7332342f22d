"""A deployed policy has the endpoints that it was trained behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import httpx
import openai
import pytest
from aiohttp import web

from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.deploy.targets.serve.access import Access
from art_cli.deploy.targets.serve.chat_server import ChatServer

LIKELIEST: Any = {"temperature": 0}


def test_official_clients_get_the_same_answer_at_every_endpoint(make_policy: Any) -> None:
    async def asks(url: str) -> None:
        user: Any = [{"role": "user", "content": "hi"}]
        async with (
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="right", max_retries=0) as client,
            anthropic.AsyncAnthropic(base_url=url, api_key="right", max_retries=0) as claude,
        ):
            chat = await client.chat.completions.create(
                model="gpt-5",
                messages=user,
                n=2,
                max_tokens=8,
                logprobs=True,
                top_logprobs=2,
                **LIKELIEST,
            )
            said = chat.choices[0].message.content
            assert said == chat.choices[1].message.content and chat.model == "gpt-5"
            chosen = chat.choices[0].logprobs
            assert chosen and chosen.content and len(chosen.content) == 8
            for token in chosen.content:  # of the model, not of a choice among one
                first, second = token.top_logprobs
                assert -20 < second.logprob <= first.logprob == token.logprob < 0
            first = await client.responses.create(
                model="m", input="hi", max_output_tokens=8, **LIKELIEST
            )
            assert first.output_text == said and first.status == "incomplete"
            more = await client.responses.create(
                model="m", input="on", max_output_tokens=1, previous_response_id=first.id
            )
            assert more.usage and first.usage and more.usage.input_tokens > first.usage.total_tokens
            message = await claude.messages.create(
                model="m", max_tokens=8, messages=user, extra_body=LIKELIEST
            )
            assert [b.text for b in message.content if b.type == "text"] == [said]
            counted = await claude.messages.count_tokens(model="m", messages=user)
            assert counted.input_tokens == message.usage.input_tokens
            plain = await client.completions.create(model="m", prompt="hi", n=2, max_tokens=3)
            assert len(plain.choices) == 2
            assert [m.id async for m in client.models.list()] == ["m"]
            likeliest = await client.chat.completions.create(
                model="m", messages=user, max_tokens=2, logprobs=True, top_logprobs=3, **LIKELIEST
            )
            tokens = likeliest.choices[0].logprobs
            assert tokens and tokens.content and tokens.content[0].top_logprobs
        with pytest.raises(anthropic.AuthenticationError):
            async with anthropic.AsyncAnthropic(base_url=url, api_key="no", max_retries=0) as other:
                await other.messages.create(model="m", max_tokens=8, messages=user)

    async def main() -> None:
        cfg = EngineConfig(max_model_len=512)
        server = ChatServer(make_policy(), "m", cfg, SamplingConfig())
        access = Access("right", "127.0.0.1")
        runner = web.AppRunner(server.app(access), access_log=None, auto_decompress=False)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            await asks(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    asyncio.run(main())


@pytest.mark.slow
def test_a_server_ends_promptly_when_it_is_told_to(make_policy: Any, tmp_path: Path) -> None:
    """In the midst of an answer too."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    make_policy().save(tmp_path)
    words = ["art_cli.deploy.targets.serve.chat_server", str(tmp_path), "m", str(port), "30000"]

    answered: list[bool] = []

    def ask(http: httpx.Client) -> None:
        # The likeliest tokens of this policy are a cycle without an end.
        asked = {"prompt": "hi", "max_tokens": 29000, "n": 16, "temperature": 0}
        with suppress(httpx.HTTPError):
            answered.append(http.post("/v1/completions", json=asked).is_success)

    process = subprocess.Popen(
        [sys.executable, "-m", *words, "29000"],
        env={**os.environ, "ART_SERVE_KEY": "k", "ART_SERVE_HOST": "127.0.0.1"},
    )
    url, headers = f"http://127.0.0.1:{port}", {"Authorization": "Bearer k"}
    try:
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=600) as http:
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                try:
                    http.get("/health").raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            asking = Thread(target=ask, args=(http,))
            asking.start()
            time.sleep(0.5)
            assert asking.is_alive()  # it was not refused
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=600) == 0
            asking.join()
            assert not any(answered)  # nobody has waited for it
    finally:
        process.kill()
        process.wait()
