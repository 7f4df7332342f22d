"""A node that only serves, and the run that uses it; vLLM itself is in tests/integration/vllm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.vllm import host
from art_cli.engines.vllm import server as vllm_server
from art_cli.engines.vllm.host import Host
from art_cli.engines.vllm.machines import RemoteMachine, check_nodes, on_one_machine, placements
from art_cli.errors import EngineError, PreflightError
from art_cli.system.child_server import ChildServer

TOKEN = "t-o-k-e-n"
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, b"{}")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(400 if b"bad" in body else 200, self.path.encode() + b" " + body)
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        print("asked", self.path, flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is started in place of vLLM -> the options and GPUs that it was given."""
    asked: list[dict[str, Any]] = []

    async def start(options: dict[str, Any], gpus: list[int], log: Path) -> ChildServer:
        asked.append(options | {"gpus": gpus})
        script = options.get("script", SERVER)
        return await ChildServer.start(["{python}", "-c", script, "{port}"], 300, log=log)

    monkeypatch.setattr(vllm_server, "start", start)
    return asked


def hosted(use: Callable[[RemoteMachine], Awaitable[Any]]) -> Any:
    """What `use` gives with a host that is there meanwhile."""
    with socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        port = s.getsockname()[1]

    async def go() -> Any:
        serving = asyncio.ensure_future(Host(TOKEN).serve("127.0.0.2", port))
        place = RemoteMachine(f"http://127.0.0.2:{port}", TOKEN)
        try:
            while True:
                with contextlib.suppress(EngineError):
                    await place.ask("POST", "/beat")
                    break
                await asyncio.sleep(0.01)
            return await use(place)
        finally:
            await place.ask("POST", "/end")
            assert await serving

    return asyncio.run(asyncio.wait_for(go(), 600))


def test_nobody_is_answered_without_the_token() -> None:
    async def use(place: RemoteMachine) -> list[int]:
        refused = []
        async with aiohttp.ClientSession() as client:
            for headers in ({}, {"Authorization": "Bearer t"}, {"Authorization": "Bearer \xff"}):
                for method, path in (("GET", "/about"), ("POST", "/servers"), ("GET", "/none")):
                    asked = client.request(method, place.url + path, headers=headers)
                    async with asked as answer:
                        refused.append(answer.status)
        return refused

    assert set(hosted(use)) == {401}


def test_a_folder_gets_there_whole_under_a_new_name_and_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "more" / ".cache").mkdir(parents=True)
    large = os.urandom(9_000_000)
    (tmp_path / "model.safetensors").write_bytes(large)
    (tmp_path / "more" / "a b%2F.json").write_text("{}")
    (tmp_path / "more" / ".cache" / "x").write_text("")

    async def use(place: RemoteMachine) -> None:
        assert place.path(tmp_path) == str(tmp_path)
        paths = []
        for _ in range(2):
            await place.put(tmp_path)
            there = Path(place.path(tmp_path))
            paths.append(there)
            assert (there / "model.safetensors").read_bytes() == large
            assert [p.name for p in (there / "more").iterdir()] == ["a b%2F.json"]
        assert paths[0] != paths[1] != tmp_path
        await place.drop(tmp_path)
        assert not paths[1].exists()

    hosted(use)


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", ".", "a//b", "x\0"])
def test_a_file_outside_of_its_folder_is_refused(path: str) -> None:
    async def use(place: RemoteMachine) -> None:
        with pytest.raises(EngineError, match="is not a path inside a folder"):
            await place.ask("POST", "/folders", json={"name": "n", "files": {path: 1}})

    hosted(use)


def test_half_a_folder_is_none(tmp_path: Path) -> None:
    async def use(place: RemoteMachine) -> None:
        await place.ask("POST", "/folders", json={"name": "n", "files": {"a": 4, "b": 1}})
        await place.ask("PUT", "/folders/n/a", data=b"abc")
        with pytest.raises(EngineError, match="'a' has 3 of 4 bytes"):
            await place.ask("POST", "/folders/n")
        with pytest.raises(EngineError, match="'c' was not announced"):
            await place.ask("PUT", "/folders/n/c", data=b"abc")
        with pytest.raises(EngineError, match="bytes free"):
            await place.ask("POST", "/folders", json={"name": "m", "files": {"a": 2**60}})

    hosted(use)


def test_a_server_is_asked_through_its_host_and_its_end_is_told(
    tmp_path: Path, stand_in: list[dict[str, Any]]
) -> None:
    log = tmp_path / "engine-0.log"

    async def use(place: RemoteMachine) -> None:
        server = await place.start({"model": "m"}, [2, 3], log)
        assert stand_in == [{"model": "m", "gpus": [2, 3]}]
        async with aiohttp.ClientSession(headers=place.headers) as client:
            url = f"{server.url}/inference/v1/generate"
            async with client.post(f"{url}?level=1", json={"a": 1}) as answer:
                assert await answer.text() == '/inference/v1/generate?level=1 {"a": 1}'
            async with client.post(url, json="bad") as answer:
                assert answer.status == 400
            assert not await server.ends_within(0.2)
            os.kill(_child_that_listens(), signal.SIGKILL)
            assert await server.ends_within(300) and server.exit_code == 137
            async with client.post(url, json={}) as answer:
                assert answer.status == 502 and "vLLM is gone" in await answer.text()
        await server.close()
        await server.close()

    hosted(use)
    assert "asked /inference/v1/generate" in log.read_text()


def _child_that_listens() -> int:
    """The process that runs SERVER, under its guard."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = entry.read_bytes().split(b"\0")
            if SERVER.encode() in words and b"-I" not in words:
                return int(entry.parent.name)
    raise AssertionError("nobody listens")


def test_a_server_that_does_not_start_says_why_and_where(tmp_path: Path) -> None:
    async def use(place: RemoteMachine) -> None:
        broken = {"script": "import sys; sys.exit('no such kernel')"}
        with pytest.raises(PreflightError, match=r"(?s)node 127.0.0.2: .*no such kernel"):
            await place.start(broken, [0], tmp_path / "log")

    hosted(use)
    assert "no such kernel" in (tmp_path / "log").read_text()


def test_a_server_that_is_still_starting_can_be_ended(tmp_path: Path) -> None:
    async def use(place: RemoteMachine) -> None:
        sleeping = {"options": {"script": "import time; time.sleep(3600)"}, "gpus": []}
        await place.ask("POST", "/servers", json=sleeping)
        await place.ask("DELETE", "/servers/0")
        found = await place.ask("GET", "/servers/0?while=running")
        assert found["state"] == "failed"
        with pytest.raises(EngineError, match="there is no server 1"):
            await place.ask("DELETE", "/servers/1")

    hosted(use)


def test_a_host_ends_when_it_hears_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "SILENCE", 0.5)
    began = time.monotonic()
    assert asyncio.run(Host(TOKEN).serve("127.0.0.2", 0)) is False
    assert time.monotonic() - began >= 0.5
    with pytest.raises(PreflightError, match=r"cannot listen on 203.0.113.1:1: "):
        asyncio.run(Host(TOKEN).serve("203.0.113.1", 1))


def test_replicas_are_spread_over_the_nodes_that_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = EngineConfig(use="vllm", nodes=2, tensor_parallel_size=2, replicas=4)
    with pytest.raises(PreflightError, match=r"engine.nodes is 2, but this process is not one of"):
        placements(cfg)
    monkeypatch.setenv("ART_ENGINE_HOSTS", "http://10.0.0.2:1 http://10.0.0.3:1")
    found = [
        (place.name, gpus) for place, gpus in placements(cfg) if isinstance(place, RemoteMachine)
    ]
    first, second = "the engine's node 10.0.0.2", "the engine's node 10.0.0.3"
    assert found == [(first, [0, 1]), (first, [2, 3]), (second, [0, 1]), (second, [2, 3])]


def test_what_plays_later_needs_no_nodes() -> None:
    cfg = EngineConfig(use="vllm", nodes=2, replicas=4)
    assert on_one_machine(cfg) == EngineConfig(use="vllm")
    split = on_one_machine(EngineConfig(use="vllm", nodes=2, tensor_parallel_size=2, replicas=4))
    assert split == EngineConfig(use="vllm", tensor_parallel_size=2, gpus=[1, 2])
    own = EngineConfig(use="vllm", gpus=[1, 2], replicas=2)
    assert on_one_machine(own) is own


def test_a_node_must_come_and_have_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = EngineConfig(use="vllm", nodes=1, tensor_parallel_size=2, replicas=4)
    monkeypatch.setattr("art_cli.engines.vllm.machines.JOIN_TIMEOUT", 0.2)
    monkeypatch.setenv("ART_ENGINE_HOSTS", "http://127.0.0.2:9")
    with pytest.raises(PreflightError, match=r"0.0.2 did not answer within 0.2 s: .*refused"):
        check_nodes(cfg)

    async def use(place: RemoteMachine) -> None:
        monkeypatch.setenv("ART_ENGINE_HOSTS", place.url)
        monkeypatch.setenv("ART_ENGINE_TOKEN", TOKEN)
        with pytest.raises(PreflightError, match=r"node 127.0.0.2 has 4 GPUs, but 8 are needed"):
            await asyncio.to_thread(check_nodes, cfg)
        monkeypatch.setattr(vllm_server, "what_is_missing", lambda: "no vLLM")
        with pytest.raises(PreflightError, match=r"node 127.0.0.2: no vLLM"):
            await asyncio.to_thread(check_nodes, cfg)
        monkeypatch.setenv("ART_ENGINE_TOKEN", "another")
        with pytest.raises(PreflightError, match="wrong token"):
            await asyncio.to_thread(check_nodes, cfg)

    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr(vllm_server, "what_is_missing", lambda: None)
    hosted(use)
