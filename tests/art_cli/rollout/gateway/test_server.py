"""What the gateway does with those who ask wrongly, hang, leave, or have no business there."""

import asyncio
import contextlib
import gzip
import json
import socket
import struct
import zlib
from functools import partial
from typing import Any

import httpx
import openai
import pytest
from fuzz import nested
from hosted import ROOM, SCENARIO, Shop, host, script

import art_cli.rollout.gateway.server as server
from art_cli.chat.render import Renderer
from art_cli.errors import EngineError
from art_cli.rollout.agents.function import Task
from art_cli.rollout.episode import Episode
from art_cli.rollout.gateway.apis import chat, serving
from art_cli.rollout.gateway.body import MAX_BODY
from art_cli.rollout.gateway.served import RENDERER, RENDERERS, Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.types import Completion, Sequence, Trajectory

USER = {"role": "user", "content": "hi"}
LONG = {"role": "user", "content": "no " * 3000}
BODY = {"model": "m", "messages": [USER]}


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function of (url, task); the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any, **more: Any) -> Trajectory:
        play.engine = script(policy, *texts)

        async def function(client: Any, task: Task) -> None:
            async with httpx.AsyncClient(timeout=300, trust_env=False) as http:
                await agent(http, str(client.base_url).rstrip("/"), task)

        return asyncio.run(host(policy, play.engine, function, **more))

    return play


def tool_of(description: Any) -> dict[str, Any]:
    function = {"name": "f", "description": description, "parameters": {}}
    return {"type": "function", "function": function}


def called(arguments: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}


def changed(url: str, *, episode: str = "", secret: str = "") -> str:
    parts = url.split("/")
    parts[4], parts[5] = episode or parts[4], secret or parts[5]
    return "/".join(parts)


def test_a_wrong_secret_and_an_unknown_episode_get_the_same_answer(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        seen = set()
        for wrong in (
            changed(url, secret="guess"),
            changed(url, secret="%ED%A0%80%FF"),
            changed(url, episode="0000"),
        ):
            for path in ("chat/completions", "../mcp"):
                answer = await http.post(f"{wrong}/{path}", json=BODY)
                seen.add((answer.status_code, answer.text))
            answer = await http.get(f"{wrong}/models")
            seen.add((answer.status_code, answer.text))
        [(status, text)] = seen
        assert status == 404 and json.loads(text)["error"]["message"] == "there is no such episode"
        nowhere = await http.post(url.partition("/e/")[0] + "/v1/chat/completions", json=BODY)
        assert nowhere.status_code == 404
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    assert len(play(agent, "a").policy_versions) == 1


def test_after_its_end_an_episode_is_unknown(make_policy: Any) -> None:
    async def ask() -> list[int]:
        policy = make_policy()
        gateway = Gateway(Served(script(policy), partial(Renderer, policy.tokenizer), ROOM))
        await gateway.start()
        trajectory = Trajectory(scenario=SCENARIO)
        hosted = gateway.open(Episode(Shop(SCENARIO, None), trajectory), [], 0)
        url, statuses = f"{gateway.url}{hosted.path}/v1/models", []
        async with httpx.AsyncClient(timeout=300, trust_env=False) as http:
            statuses.append((await http.get(url)).status_code)
            gateway.leave(hosted)
            statuses.append((await http.get(url)).status_code)
        await gateway.close()
        return statuses

    assert asyncio.run(ask()) == [200, 404]


def test_it_listens_on_loopback_alone_and_not_after_its_end(play: Any) -> None:
    ports = []

    async def agent(http: Any, url: str, task: Task) -> None:
        ports.append(httpx.URL(url).port)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", ports[0]), timeout=2)
        await http.post(f"{url}/chat/completions", json=BODY)

    play(agent, "a")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", ports[0]), timeout=2)
    assert play.engine.num_open == 0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{}", "messages: Field required"),
        (b'{"messages": []}', "messages: List should have at least 1 item"),
        (b'{"messages": [{"role": "robot"}]}', "role among"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "expected text"),
        (b'{"messages": [{"role": "assistant", "content": "a"}]}', "needs a message before it"),
        (json.dumps({"messages": [USER, called("{}")]}).encode(), "send the results of the calls"),
        (json.dumps(BODY | {"n": 17}).encode(), "n: Input should be less than or equal to 16"),
        (json.dumps(BODY | {"tools": [{"type": "x"}]}).encode(), "tools.0.type"),
        (json.dumps(BODY | {"tool_choice": "required"}).encode(), "not among the tools"),
        (json.dumps(BODY | {"response_format": {"type": "grammar"}}).encode(), "response_form"),
        (json.dumps(BODY | {"stop": ["a"] * 65}).encode(), "stop"),
        (json.dumps(BODY | {"max_tokens": 0}).encode(), "max_tokens"),
        (json.dumps(BODY | {"stop": "\ud800"}).encode(), "half a surrogate pair"),
        (json.dumps(BODY | {"stop": "x" * 1000}).encode(), "at most 256 characters"),
        (json.dumps({"messages": [USER | {"content": "a\udfff"}]}).encode(), "half a surrogate"),
        (json.dumps(BODY | {"tools": [tool_of("\ud800")]}).encode(), "half a surrogate pair"),
        (json.dumps(BODY | {"tools": [tool_of(nested(700))]}).encode(), "more than 64 deep"),
        (json.dumps(BODY | {"seed": 10**4000}).encode(), "more than 400 digits"),
        (b'{"seed": %s}' % (b"9" * 5000), "more than 400 digits"),
        (json.dumps(BODY | {"temperature": float("nan")}).encode(), "nan is no number"),
        (b'{"messages": [], "messages": []}', "the key 'messages' stands there twice"),
        (
            json.dumps({"messages": [called(f'{{"a": {"[" * 700}{"]" * 700}}}')]}).encode(),
            "64 deep",
        ),
        (json.dumps({"messages": [called('{"a": 1, "a": 2}')]}).encode(), "'a' stands there twice"),
        (json.dumps({"messages": [called(r'{"a": "\ud800"}')]}).encode(), "half a surrogate pair"),
        (json.dumps({"messages": [7] * 10**5}).encode(), "messages: List should have at most"),
        (b'{"messages": [%s0]}' % (b"0," * 2**20), "more than 1048576 values"),
    ],
)
def test_a_bad_body_gets_400_in_openais_form(play: Any, body: bytes, said: str) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        answer = await http.post(f"{url}/chat/completions", content=body)
        assert answer.status_code == 400
        assert said in answer.json()["error"]["message"]
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    play(agent, "a")


def test_who_asks_for_a_websocket_is_told_to_use_http(play: Any) -> None:
    async def agent(http: httpx.AsyncClient, url: str, task: Task) -> None:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
        for path in ("responses", "chat/completions", "nothing"):
            response = await http.get(f"{url}/{path}", headers=headers)
            assert response.status_code == 426
            assert "by HTTP POST" in response.json()["error"]["message"]
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    assert play(agent, "a").error is None


def test_a_body_that_is_too_large_gets_413(play: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(server, "MAX_BODY", 1000)  # of aiohttp's own check

    async def agent(http: Any, url: str, task: Task) -> None:
        answer = await http.post(f"{url}/chat/completions", content=b"x" * 5000)
        assert answer.status_code == 413
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    play(agent, "a")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compressed_body_is_unpacked_up_to_a_limit(play: Any, coding: str) -> None:
    pack = gzip.compress if coding == "gzip" else zlib.compress
    bomb = pack(json.dumps(BODY | {"x": "0" * MAX_BODY}).encode())
    assert len(bomb) < MAX_BODY / 100

    async def agent(http: Any, url: str, task: Task) -> None:
        async def status(body: bytes, coding: str = coding) -> int:
            headers = {"Content-Encoding": coding}
            url_of = f"{url}/chat/completions"
            return (await http.post(url_of, content=body, headers=headers)).status_code

        good = pack(json.dumps(BODY).encode())
        assert await status(good) == 200
        assert await status(bomb) == 413
        assert await status(good[:-4]) == 400
        assert await status(b"none of it") == 400
        assert await status(good, "br") == 415

    play(agent, "a")


@pytest.mark.parametrize("num", [2**15, 2**23])
def test_a_message_far_too_long_is_refused_as_one_that_is_a_little(play: Any, num: int) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        body = {"messages": [{"role": "user", "content": "a b " * (num // 4)}]}
        answer = await http.post(f"{url}/chat/completions", json=body)
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["code"] == "context_length_exceeded"
        assert error["message"].endswith(f"and there is room for {ROOM}")

    assert play(agent).stop_reason == "context"


def test_the_renderers_of_many_sets_of_tools_are_bounded_in_bytes(make_policy: Any) -> None:
    served = Served(script(make_policy()), partial(Renderer, make_policy().tokenizer), ROOM)

    async def ask() -> None:
        for n in range(50):
            await served.renderer([tool_of("x" * 2**19 + str(n))], 2**19)

    asyncio.run(ask())
    assert 0 < served._cached.num_bytes <= RENDERER * RENDERERS


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /e/",
        b"POST / HTTP/1.1\r\nHost: a\r\n",
        b"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{{",
        b"\x16\x03\x01\x02\x00\x01",
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "not HTTP"],
)
def test_who_is_slow_or_talks_nonsense_is_dropped(play: Any, monkeypatch: Any, sent: bytes) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(serving, "BODY_TIMEOUT", 0.3)

    async def agent(http: Any, url: str, task: Task) -> None:
        parts = httpx.URL(url)
        reader, writer = await asyncio.open_connection(parts.host, parts.port)
        writer.write(sent.replace(b"{path}", f"{parts.path}/chat/completions".encode()))
        answer = await asyncio.wait_for(reader.read(), 300)  # until it is closed
        assert not answer or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.0 400"))
        writer.close()
        for module, limit in ((server, "HEAD_TIMEOUT"), (serving, "BODY_TIMEOUT")):
            monkeypatch.setattr(module, limit, 300)
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    play(agent, "a")


@pytest.mark.parametrize("stream", [False, True])
def test_who_hangs_up_leaves_nothing_behind(play: Any, stream: bool) -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def never() -> str:
        asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    async def agent(http: Any, url: str, task: Task) -> None:
        body = BODY | {"stream": stream}
        asking = asyncio.ensure_future(http.post(f"{url}/chat/completions", json=body))
        await asyncio.wait_for(asked.wait(), 300)
        asking.cancel()
        await asyncio.wait_for(cancelled.wait(), 300)
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    trajectory = play(agent, never, "a")
    assert len(trajectory.policy_versions) == 1 and play.engine.num_open == 0


def test_a_waiting_stream_shows_signs_of_life(play: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(serving, "HEARTBEAT", 0.05)

    seen = asyncio.Event()

    async def slow() -> str:
        await asyncio.wait_for(seen.wait(), 300)
        return "hello"

    async def agent(http: Any, url: str, task: Task) -> None:
        asked, lines = BODY | {"stream": True}, []
        async with http.stream("POST", f"{url}/chat/completions", json=asked) as answer:
            assert answer.headers["content-type"] == "text/event-stream"
            async for line in answer.aiter_lines():
                lines += [line] if line else []
                if lines.count(": still sampling") == 2:
                    seen.set()
        assert lines[-1] == "data: [DONE]"

    play(agent, slow)


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_stops_the_run_and_not_the_gateway(play: Any, stream: bool) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        body = BODY | {"stream": stream}
        answer = await http.post(f"{url}/chat/completions", json=body)
        assert answer.status_code == 503 and "it died" in answer.json()["error"]["message"]
        again = await http.post(f"{url}/chat/completions", json=BODY)
        assert again.status_code == 400 and "over" in again.text

    with pytest.raises(EngineError, match="it died"):
        play(agent, EngineError("it died"))


def test_messages_that_the_template_refuses_get_400(play: Any, make_policy: Any) -> None:
    policy = make_policy()
    refusal = "{% if messages | length > 2 %}{{ raise_exception('one at a time') }}{% endif %}"
    policy.tokenizer.chat_template = refusal + policy.tokenizer.chat_template

    async def agent(client: Any, task: Task) -> None:
        with pytest.raises(openai.BadRequestError, match="one at a time"):
            messages = [{"role": "user", "content": "hi"}] * 3
            await client.chat.completions.create(model="m", messages=messages)
        await client.chat.completions.create(model="m", messages=messages[:1])

    trajectory = asyncio.run(host(policy, script(policy, "a"), agent))
    assert trajectory.error is None


def test_a_failure_of_the_gateway_is_not_the_agents(play: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(chat, "usage", lambda *_: {}["bug"])

    async def agent(http: Any, url: str, task: Task) -> None:
        answer = await http.post(f"{url}/chat/completions", json=BODY)
        assert answer.status_code == 500 and "bug" in answer.text

    trajectory = play(agent, "a")
    assert trajectory.reward is None and "KeyError: 'bug'" in (trajectory.error or "")


def test_after_max_turns_the_episode_is_over(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        for _ in range(Shop.max_turns):
            for _ in range(2):  # a plan, say, and a turn
                assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200
            await task.call_tool("price", {"item": "mug"})
        answer = await http.post(f"{url}/chat/completions", json=BODY)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "episode_over"
        answer.raise_for_status()

    trajectory = play(agent, *"abcdefghijkl")
    assert trajectory.stop_reason == "max_turns" and trajectory.reward == 0  # no crash either
    assert (trajectory.num_turns, trajectory.num_calls) == (Shop.max_turns, 2 * Shop.max_turns)


def test_calls_of_the_policy_have_a_limit_of_their_own(make_policy: Any) -> None:
    policy = make_policy()

    async def agent(client: Any, task: Task) -> None:
        ask = partial(client.chat.completions.create, model="m", messages=task.messages)
        await ask()
        await ask()
        with pytest.raises(openai.BadRequestError, match=r"max_calls: agent.max_calls is reached"):
            await ask()

    engine = script(policy, "a", "b")
    trajectory = asyncio.run(host(policy, engine, agent, max_calls=2))
    assert trajectory.stop_reason == "max_calls" and trajectory.num_calls == 2


def test_the_default_limit_of_calls_goes_with_the_envs_turns(make_policy: Any) -> None:
    class Short(Shop):
        max_turns = 1

    async def agent(client: Any, task: Task) -> None:
        while not task.is_over:
            with contextlib.suppress(openai.BadRequestError):
                await client.chat.completions.create(model="m", messages=task.messages)

    policy = make_policy()
    trajectory = asyncio.run(host(policy, script(policy, *"0123456789"), agent, env=Short))
    assert trajectory.stop_reason == "max_calls" and trajectory.num_calls == 10


@pytest.mark.parametrize("crashes", [True, False])
def test_an_agent_that_ends_on_what_does_not_fit_was_stopped_by_it(
    play: Any, crashes: bool
) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        first = await http.post(f"{url}/chat/completions", json=BODY)
        message = first.json()["choices"][0]["message"]
        body = {"messages": [*BODY["messages"], message, LONG]}
        answer = await http.post(f"{url}/chat/completions", json=body)
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        if crashes:
            answer.raise_for_status()

    trajectory = play(agent, "a", "b")
    assert trajectory.metrics["crashed"] == 0 and trajectory.metrics["heard"] == 0
    assert trajectory.stop_reason == "context" and trajectory.truncated
    assert [s.num_sampled > 0 for s in trajectory.sequences] == [True]


def test_a_side_call_that_does_not_fit_leaves_the_answer(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)
        await http.post(f"{url}/chat/completions", json={"messages": [LONG]})

    trajectory = play(agent, "bye")
    assert trajectory.stop_reason == "env" and trajectory.metrics["heard"] == 1


@pytest.mark.parametrize("kept", [True, False])
def test_an_agent_that_makes_its_history_shorter_goes_on(play: Any, kept: bool) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        ask = partial(http.post, f"{url}/chat/completions")
        message = (await ask(json=BODY)).json()["choices"][0]["message"]
        messages = [*BODY["messages"], message, LONG]
        answer = await ask(json={"messages": messages})
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        again = [*messages[:-1], USER] if kept else [USER]
        assert (await ask(json={"messages": again})).status_code == 200

    trajectory = play(agent, "a", "bye")
    assert trajectory.stop_reason == "env" and not trajectory.truncated
    assert trajectory.metrics["heard"] == 1 and trajectory.metrics["crashed"] == 0
    assert len(trajectory.sequences) == (1 if kept else 2)
    assert [s.num_sampled > 0 for s in trajectory.sequences] == [True] * len(trajectory.sequences)


def test_an_answer_that_nobody_received_is_not_trained_on(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        port, path = httpx.URL(url).port, httpx.URL(url).path
        body = json.dumps(BODY).encode()
        head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
        gone = socket.create_connection(("127.0.0.1", port), timeout=60)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        async def unheard() -> str:
            gone.close()  # the server finds out when it writes
            return "unheard"

        play.engine.texts.insert(0, unheard)
        gone.sendall(f"{head}\r\n\r\n".encode() + body)
        while play.engine.texts[0] is unheard:
            await asyncio.sleep(0.01)
        assert (await http.post(f"{url}/chat/completions", json=BODY)).status_code == 200

    trajectory = play(agent, "bye")
    [sequence] = trajectory.sequences
    sampled = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
    assert play.engine.renderer.decode(sampled) == "bye" and trajectory.num_calls == 1
    assert trajectory.metrics["answers_unheard"] == 1 and trajectory.metrics["heard"] == 1


def test_an_answer_that_nobody_received_leaves_what_came_before() -> None:
    first = Completion(token_ids=[7, 8], logprobs=[-1, -2], finish_reason="stop", policy_version=0)
    sequence = Sequence()
    for _ in range(2):
        sequence.extend_prompt([5])
        sequence.extend_sampled(first)
    sequence.forget(4)
    assert sequence.mask == [0, 1, 1, 0, 0, 0] and sequence.ids == [5, 7, 8, 5, 7, 8]
    assert sequence.engine_logprobs == [0, -1, -2, 0, 0, 0]


def test_the_env_ends_the_episode(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)
        assert await task.call_tool("sell", {"item": "mug"}) == "sold"
        assert await task.call_tool("sell", {"item": "cup"}) == "error: one thing only"
        assert await task.call_tool("nope", {}) == (
            "error: there is no tool 'nope'; there are price, sell, close_shop, crash"
        )
        assert not task.is_over
        assert "over" in await task.call_tool("close_shop", {})
        assert task.is_over
        answer = await http.post(f"{url}/chat/completions", json=BODY)
        assert answer.status_code == 400

    trajectory = play(agent, "a")
    assert trajectory.stop_reason == "env" and trajectory.reward == 1.0


def test_a_failure_of_the_env_is_not_the_agents(play: Any) -> None:
    async def agent(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)
        await task.call_tool("crash", {})

    trajectory = play(agent, "a")
    assert trajectory.reward is None and trajectory.stop_reason == "error"
    assert trajectory.error and "KeyError: 'key'" in trajectory.error.partition("\n")[0]


def test_words_go_to_the_env_and_the_last_turn_only_if_none_did(play: Any) -> None:
    async def silent(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)

    async def speaking(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)
        assert await task.reply("it is 3") == "and?"
        assert "over" in await task.reply("bye")

    async def leaving(http: Any, url: str, task: Task) -> None:
        await http.post(f"{url}/chat/completions", json=BODY)
        await task.reply("it is 3")

    assert play(silent, "words").metrics["heard"] == 1
    assert play(speaking, "words").metrics["heard"] == 2
    assert play(leaving, "words").metrics["heard"] == 1
