"""Ctrl-C in a terminal reaches its foreground process group: this process, not those it starts."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import art_cli.system.scratch as scratch
from art_cli.deploy.base import Deployment
from art_cli.deploy.targets.serve.process import ServerProcess, end_process
from art_cli.lab.fleet import Fleet
from art_cli.rollout.agents.persistent import PersistentRunner
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.rollout.env_class import env_in
from art_cli.system.child_server import ChildServer
from art_cli.types import Scenario, Trajectory
from art_envs.tasks import mathematics

SAYS = "import os; print('group', os.getpgid(0), flush=True)"
# Answers one episode, as a program does that plays many.
KEEPS = f"""
import json, sys
{SAYS}
for line in sys.stdin:
    end = {{"art": "end", "id": json.loads(line)["id"], "answer": "", "reward": 0.5}}
    print(json.dumps(end), flush=True)
"""
SERVES = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
ENV = '''
from art_cli import Env

class Waits(Env):
    """Never played."""
'''


def env_worker(folder: Path) -> int:
    (folder / "waits.py").write_text(ENV)
    env: Any = env_in(f"{folder}/waits.py:Waits", sys.executable)
    try:
        return os.getpgid(env.worker.process()._process.pid)
    finally:
        env.worker.close()


def said_by(runner: ProgramRunner) -> int:
    """Return the process group that the program of an episode says it is in."""
    trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))

    async def work_in(*_: Any) -> None: ...

    async def play() -> None:
        hosted: Any = SimpleNamespace(opening=[], tools=[], work_in=work_in, id="e")
        hosted.secrets = SimpleNamespace(key="k")
        await runner.open()
        try:
            await runner.run(hosted, "http://127.0.0.1:9", trajectory)
        finally:
            await runner.close()

    asyncio.run(play())
    return int(" ".join(trajectory.logs).partition("group ")[2].split()[0])


def program(folder: Path) -> int:
    return said_by(ProgramRunner([sys.executable, "-c", SAYS], []))


def kept_program(folder: Path) -> int:
    return said_by(PersistentRunner([sys.executable, "-c", KEEPS], [], None, 60.0))


def child_server(folder: Path) -> int:
    async def start() -> int:
        server = await ChildServer.start(["{python}", "-c", SERVES, "{port}"])
        try:
            return os.getpgid(server._process.pid)
        finally:
            await server.close()

    return asyncio.run(start())


def deployed_server(folder: Path) -> int:
    deployment = Deployment(target="serve", name="mine", step=1, home=str(folder))
    server = ServerProcess(["sleep", "3600"], {}, deployment)
    server.forget()
    try:
        return os.getpgid(deployment.made["pid"])
    finally:
        end_process(deployment)


def run_of_a_lab(folder: Path) -> int:
    fleet = Fleet("p", folder, jobs=1)
    with tempfile.TemporaryFile() as printed:
        process = fleet._start(["--version"], printed)
        try:
            return os.getpgid(process.pid)
        finally:
            assert process.stdin
            process.stdin.close()
            process.wait()


def remover_of_scratch(folder: Path) -> int:
    """The shell that outlives us: it is found by the folder that it was given."""
    assert scratch.make_scratch("x").parent == folder
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
            if words[:2] == [b"sh", b"-c"] and os.fsencode(folder) in words:
                return os.getpgid(int(entry.parent.name))
        except (OSError, ProcessLookupError):
            continue  # a process that has ended
    raise AssertionError("no process watches the folder")


def mathematician(folder: Path) -> int:
    pytest.importorskip("math_verify")
    worker = mathematics._Worker()
    worker._start()
    try:
        assert worker._process
        return os.getpgid(worker._process.pid)
    finally:
        worker.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="finds a process in /proc")
@pytest.mark.parametrize(
    "start",
    [
        *(env_worker, program, kept_program, child_server, deployed_server, run_of_a_lab),
        *(remover_of_scratch, mathematician),
    ],
)
def test_a_process_that_is_started_is_in_a_group_of_its_own(
    start: Callable[[Path], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert start(tmp_path) != os.getpgid(0)


def test_what_removes_a_folder_is_in_a_group_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C while an episode's folder is removed must not leave half of it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "rm").write_text(f"#!{sys.executable}\n{SAYS}\n")
    (programs / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    said = asyncio.run(scratch.remove(programs))
    assert int(said.removeprefix("group ")) != os.getpgid(0)
