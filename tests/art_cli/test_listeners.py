"""Nobody on another machine can connect to what listens here, but to an engine host with its token.

Each mode that listens is started, and the kernel is asked what its processes listen on.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from short_run import CONFIG, Art

from art_cli.config.sections.engine import EngineConfig
from art_cli.engines.base import TOKEN
from art_cli.engines.vllm import server as vllm_server
from art_cli.rollout.gateway.entrance import Entrance
from art_cli.rollout.gateway.server import Gateway

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked by /proc")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
LISTENS = "0A"  # the state of a socket in /proc/net/tcp
DEADLINE = 300.0  # seconds: on a busy machine a start alone takes a minute


def tree(root: int) -> set[int]:
    """A process and all that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = set(), {root}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in found} - found
    return found


def listening(root: int) -> list[tuple[str, Address]]:
    """(command line, address) of every TCP socket that the processes of a tree listen on."""
    addresses = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENS:
                addresses[f"socket:[{fields[9]}]"] = _address(fields[1].partition(":")[0])
    found = []
    for pid in tree(root):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):  # closed again
                    if (link := os.readlink(descriptor)) in addresses:
                        found.append((command, addresses[link]))
    return found


def _address(words: str) -> Address:
    raw = bytes.fromhex(words)  # words of 32 bits, each with its last byte first
    found = ipaddress.ip_address(b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4)))
    return getattr(found, "ipv4_mapped", None) or found


def assert_on_loopback(found: list[tuple[str, Address]]) -> None:
    assert [(command, str(a)) for command, a in found if not a.is_loopback] == []


def until(condition: Callable[[], Any], said: Callable[[], str] = str) -> Any:
    """Return the first true value of it."""
    deadline = time.monotonic() + DEADLINE
    while not (value := condition()):
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)
    return value


@contextmanager
def process(*command: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, *command], env=os.environ | variables) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "127.0.0.2", "::1"])
def test_what_listens_is_found_with_its_address(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family):
        found = [a for _, a in listening(os.getpid())]
    assert ipaddress.ip_address(address) in found


AGENT = """
import json, os, sys, time, urllib.request
from pathlib import Path
metrics, held = map(Path, sys.argv[1:])
if metrics.exists() and metrics.stat().st_size:  # a step is done
    held.touch()
    time.sleep(3600)
body = {"model": "policy", "messages": json.load(open(os.environ["ART_SCENARIO_FILE"]))["messages"]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
headers = {"Content-Type": "application/json"}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
urllib.request.urlopen(request).read()
"""
CHAT_SERVER = "art_cli.deploy.targets.serve.chat_server"
JUDGE = Path(__file__).parents[2] / "scripts" / "rule_based_judge.py"


@pytest.mark.slow
def test_a_run_with_ranks_a_gateway_a_judges_server_and_wandb_listens_on_loopback(
    tmp_path: Path,
) -> None:
    """Looked at in the second step, where all of them are up. Then it is killed, and all end."""
    metrics, held = tmp_path / "runs/test/short/metrics.jsonl", tmp_path / "held"
    (tmp_path / "agent.py").write_text(AGENT)
    command = [sys.executable, str(tmp_path / "agent.py"), str(metrics), str(held)]
    config = re.sub("sft: .*", "sft: null", CONFIG) + (
        f"agent: {{use: program, command: {command}}}\n"
        f'judge: {{model: openai/rules, command: ["{{python}}", "{JUDGE}", --port, "{{port}}"]}}\n'
        "reward: {env: 1.0, judge: 0.5}\n"
        "track: {wandb: {mode: offline}}\n"
    )
    (tmp_path / "config.yaml").write_text(config)
    small = ["train.num_processes=2", "train.scenarios_per_step=1", "train.group_size=2"]
    art = Art(tmp_path, "config.yaml", *small, "eval=null", env={"HOME": str(tmp_path)})
    until(lambda: held.exists() or not art.is_alive(), lambda: art.output)
    assert art.is_alive(), art.output
    found = listening(art.pid)
    assert_on_loopback(found)
    commands = [command for command, _ in found]
    assert any("art_cli.training.trainers.distributed.ranks" in command for command in commands)
    assert any("rule_based_judge.py" in command for command in commands)
    assert sum("forkserver" in command for command in commands) >= 2  # a rank, and the gateway
    everyone = tree(art.pid)
    art.signal(signal.SIGKILL)
    until(lambda: not any(map(runs, everyone)), lambda: f"{[p for p in everyone if runs(p)]}")


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


@pytest.mark.slow
def test_a_deployed_checkpoint_is_served_on_loopback(
    make_policy: Any, tmp_path: Path, port: int
) -> None:
    make_policy().save(tmp_path)
    words = [
        "art_cli.deploy.targets.serve.chat_server",
        str(tmp_path),
        "name",
        str(port),
        "256",
        "8",
    ]
    with process("-m", *words, ART_SERVE_KEY="k", ART_SERVE_HOST="127.0.0.1") as server:
        found = until(lambda: listening(server.pid))
        assert_on_loopback(found)


def test_a_gateway_for_a_service_listens_where_it_is_told_and_nowhere_else() -> None:
    async def go() -> list[Address]:
        before = [a for _, a in listening(os.getpid())]
        gateway = Gateway(None, Entrance.at("127.0.0.2:0", None))  # type: ignore[arg-type]
        await gateway.start()
        found = [a for _, a in listening(os.getpid())]
        await gateway.close()
        for address in before:
            found.remove(address)
        return found

    assert [str(a) for a in asyncio.run(go())] == ["127.0.0.2"]


VLLM = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
options = dict(zip(sys.argv[1:], sys.argv[2:]))
HTTPServer((options.get("--host", ""), int(options["--port"])), Handler).serve_forever()
"""


def test_vllm_is_told_to_listen_on_loopback(
    make_policy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command line that art starts it with; in its place stands what obeys --host."""
    package = tmp_path / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(VLLM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = vllm_server.options_of(make_policy(), EngineConfig(use="vllm"))

    async def go() -> list[tuple[str, Address]]:
        server = await vllm_server.start(options, [], tmp_path / "engine.log")
        try:
            return listening(server._process.pid)
        finally:
            await server.close()

    found = asyncio.run(go())
    assert found
    assert_on_loopback(found)


@pytest.mark.slow
def test_an_engine_host_alone_listens_beyond_and_answers_nobody_without_the_token(
    port: int,
) -> None:
    with process("-m", "art_cli.engines.vllm.host", "0.0.0.0", str(port), **{TOKEN: "s"}) as host:
        [(_, address)] = until(lambda: listening(host.pid))
        assert str(address) == "0.0.0.0"
        url = f"http://127.0.0.1:{port}"
        for method, path in (("GET", "/about"), ("POST", "/servers"), ("PUT", "/folders/a/b")):
            for headers in ({}, {"Authorization": "Bearer t"}):
                answer = httpx.request(method, url + path, headers=headers, timeout=DEADLINE)
                assert answer.status_code == 401
        headers = {"Authorization": "Bearer s"}
        assert httpx.get(url + "/about", headers=headers, timeout=DEADLINE).status_code == 200
