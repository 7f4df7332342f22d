"""A server that is started with the run: when it is ready, what it says, and that it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from art_cli.config.sections.judge import JudgeConfig
from art_cli.errors import PreflightError
from art_cli.llms.judges.build import make_judge
from art_cli.system.child_server import ChildServer

# Answers after a while (the second argument), and writes its process id first.
GOOD = """
import os, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[3]) if len(sys.argv) > 3 else 200)
        self.end_headers()
open("pid", "w").write(str(os.getpid()))
time.sleep(float(sys.argv[2]))
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
HOLDER = """
import asyncio, json, sys
from art_cli.system.child_server import ChildServer
async def hold():
    server = await ChildServer.start(json.loads(sys.argv[1]))
    print("ready", flush=True)
    await asyncio.sleep(60)
asyncio.run(hold())
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


def started(command: list[str], then: Callable[[ChildServer], Any], **settings: Any) -> Any:
    """What `then` gives for a server that is ready; it is closed afterwards."""

    async def go() -> Any:
        server = await ChildServer.start(command, **settings)
        try:
            return then(server)
        finally:
            await server.close()

    return asyncio.run(go())


def pid(folder: Path, name: str = "pid") -> int:
    deadline = time.monotonic() + 300
    while not ((file := folder / name).exists() and file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether it ends."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False


def test_it_is_ready_when_it_answers_on_the_port_it_was_given() -> None:
    def models(server: ChildServer) -> int:
        assert server.api_base.endswith("/v1")
        return httpx.get(f"{server.api_base}/models").status_code

    assert started(["{python}", "good.py", "{port}", "0.3"], models) == 200


def test_a_server_that_knows_no_models_is_ready_and_one_that_is_loading_is_not() -> None:
    assert started(["{python}", "good.py", "{port}", "0", "404"], lambda s: True)
    with pytest.raises(PreflightError, match="did not answer"):
        started(["{python}", "good.py", "{port}", "0", "503"], lambda s: True, timeout=0.5)


def test_port_and_python_are_replaced_wherever_they_stand(folder: Path) -> None:
    script = 'open("words", "w").write(" ".join(sys.argv[1:]))'
    command = ["{python}", "-c", f"import sys; {script}", "--at=:{port}:{port}", "{other}", "{}"]
    with pytest.raises(PreflightError, match="ended with exit code 0"):
        started(command, lambda server: None)
    first, *others = (folder / "words").read_text().split()
    assert first.startswith("--at=:") and len(set(first[6:].split(":"))) == 1
    assert int(first.rpartition(":")[2]) > 0 and others == ["{other}", "{}"]


def test_a_command_that_ends_gives_its_last_words() -> None:
    script = "import sys; print('x' * 9999); sys.exit('no GPU for {port}')"
    with pytest.raises(PreflightError) as raised:
        started(["{python}", "-c", script], lambda server: None)
    message = str(raised.value)
    assert "ended with exit code 1 before it answered; it said:" in message
    assert "no GPU for " in message and "{port}" not in message and len(message) < 3000


def test_a_command_that_says_nothing_is_told_so() -> None:
    with pytest.raises(PreflightError, match=r"it said:\n\(nothing\)"):
        started(["{python}", "-c", "raise SystemExit(3)"], lambda server: None)


def test_a_command_that_does_not_exist_is_named() -> None:
    with pytest.raises(PreflightError, match="cannot start no-such-server --port 1: there is no"):
        started(["no-such-server", "--port", "1"], lambda server: None)


@pytest.mark.slow
def test_a_server_that_never_answers_ends_in_its_deadline_and_in_the_grave(folder: Path) -> None:
    with pytest.raises(PreflightError, match=r"did not answer GET http://.*/v1/models within 3 s"):
        started(["{python}", "good.py", "{port}", "3600"], lambda server: None, timeout=3)
    assert is_gone(pid(folder))


CHILD = "open('child', 'w').write(str(os.getpid())); time.sleep(1000)"
PARENT = """
import subprocess, sys
subprocess.Popen([sys.executable, '-c', sys.argv[4]], start_new_session=len(sys.argv) > 5)
"""


OWN_SESSION = [
    [],
    pytest.param(
        ["own session"],
        marks=pytest.mark.skipif(sys.platform != "linux", reason="there is no subreaper"),
    ),
]


@pytest.mark.parametrize("session", OWN_SESSION)
@pytest.mark.parametrize("deaf", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN);"])
def test_closing_ends_all_that_the_command_has_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, deaf: str, session: list[str]
) -> None:
    monkeypatch.setattr("art_cli.system.child_server.STOP_TIMEOUT", 0.3)
    (folder / "parent.py").write_text(PARENT + GOOD)
    child = f"import os, signal, time; {deaf} {CHILD}"
    command = ["{python}", "parent.py", "{port}", "0", "200", child, *session]
    pids = started(command, lambda server: [pid(folder), pid(folder, "child")])
    assert all(map(is_gone, pids))


def test_closing_twice_or_after_its_end_is_fine(folder: Path) -> None:
    async def go() -> None:
        server = await ChildServer.start(["{python}", "good.py", "{port}", "0"])
        os.kill(pid(folder), signal.SIGKILL)
        await server.close()
        await server.close()

    asyncio.run(go())


@pytest.mark.parametrize("session", OWN_SESSION)
def test_a_run_that_is_killed_leaves_nothing_of_a_server(folder: Path, session: list[str]) -> None:
    (folder / "parent.py").write_text(PARENT + GOOD)
    child = f"import os, time; {CHILD}"
    command = json.dumps(["{python}", "parent.py", "{port}", "0", "200", child, *session])
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, command], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout and holder.stdout.readline() == "ready\n"
    holder.kill()
    holder.communicate(timeout=300)
    assert is_gone(pid(folder)) and is_gone(pid(folder, "child"))


def test_a_server_that_is_killed_takes_what_it_started_with_it(folder: Path) -> None:
    (folder / "parent.py").write_text(PARENT + GOOD)
    child = f"import os, time; {CHILD}"

    def kill(server: ChildServer) -> int | None:
        child = pid(folder, "child")
        os.kill(pid(folder), signal.SIGKILL)
        assert is_gone(child)
        deadline = time.monotonic() + 300
        while server.runs and time.monotonic() < deadline:
            time.sleep(0.01)
        return server.exit_code

    command = ["{python}", "parent.py", "{port}", "0", "200", child]
    assert started(command, kill) == 128 + signal.SIGKILL


def test_a_judge_that_cannot_be_used_takes_its_server_with_it(folder: Path) -> None:
    cfg = JudgeConfig(model="nobody/knows", command=["{python}", "good.py", "{port}", "0"])
    with pytest.raises(PreflightError, match="is not a model that litellm knows"):
        asyncio.run(make_judge(cfg, 0))
    assert is_gone(pid(folder))
