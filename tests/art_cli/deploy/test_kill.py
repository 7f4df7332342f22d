"""`art deploy` and `art undeploy`, killed: begun again they end the same, and nothing is left."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from short_run import Art, at_work_in

from art_cli.cli.deploy import _stay
from art_cli.deploy.base import Deployment
from art_cli.deploy.store import Store
from art_cli.errors import EXIT_USAGE, ArtError
from art_cli.runs.directory import RunDir
from art_cli.system.checksums import SUMS

NUM_KILLS = int(os.environ.get("ART_KILLS", "3"))
NAME = "test-short-2"
LAST = ["--checkpoint", "last"]
LONG = 110.0  # seconds: it is only there lest a test hang
pytestmark = pytest.mark.slow


@pytest.fixture
def run(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """By its whole path: this process stands elsewhere, and is not one of those in its folder."""
    root = run.root.absolute()
    monkeypatch.chdir(root.parents[3])
    return RunDir(root)


@pytest.fixture
def port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(run: RunDir, command: str, *words: str) -> Art:
    folder = run.root.parents[2]
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {"TMPDIR": str(folder / "tmp")}
    return Art(folder, "runs/test/short", *words, command=command, env=environment)


def serve(run: RunDir, port: int, *words: str) -> Art:
    return start(run, "deploy", "--to", "serve", f"port={port}", *LAST, *words)


def until(condition: Callable[[], Any], said: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, said()
        time.sleep(0.02)


def nobody_is_left(run: RunDir) -> None:
    folder = run.root.parents[2]
    until(lambda: at_work_in(folder) == [], lambda: str(at_work_in(folder)))


def leftovers(run: RunDir) -> list[str]:
    """Half-made and half-removed folders, and temporary files."""
    folder = run.root.parents[2]
    found = [*folder.rglob(".writing-*"), *folder.rglob(".removed-*"), *folder.rglob("*.tmp")]
    return [str(p) for p in (*found, *(folder / "tmp").iterdir())]


def answers(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name
)
def test_a_server_ends_with_its_command(run: RunDir, art: Any, port: int, number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this process ignores it, and so do those that it starts: nohup")
    command = serve(run, port)
    until(lambda: "Ctrl-C ends it" in command.output, lambda: command.output)
    assert answers(port)
    command.signal(number)
    code = command.wait(LONG)
    nobody_is_left(run)
    assert not answers(port)
    (known,) = json.loads(art("deployments", "--json").output)
    assert known["now"] == "stopped"
    if number == signal.SIGKILL:
        assert art("undeploy", "--yes").exit_code == 0
    else:
        assert code == 0 and "ended" in command.output
    assert Store(run).all()[0].state == "stopped"
    assert not (run.deployment("serve", NAME) / "weights").exists() and leftovers(run) == []


def test_a_second_start_says_where_the_first_one_serves(run: RunDir, art: Any, port: int) -> None:
    command = serve(run, port)
    until(lambda: "Ctrl-C ends it" in command.output, lambda: command.output)
    pid = Store(run).all()[0].made["pid"]
    where = f"at http://127.0.0.1:{port}/v1, by process {pid}, as long as the command that started"
    for words in (["port=1"], [f"port={port}"], [f"port={port}", "--no-wait"]):
        refused = art("deploy", "--to", "serve", *words, *LAST)
        assert refused.exception.exit_code == EXIT_USAGE, words
        assert where in str(refused.exception) and "art undeploy" in str(refused.exception)
    assert answers(port) and Store(run).all()[0].made["pid"] == pid
    assert art("undeploy", "--yes").exit_code == 0, "of a server that another command waits for"
    assert command.wait(LONG) == 0 and "ended" in command.output
    nobody_is_left(run)


def test_one_that_stays_is_found_named_and_ended(run: RunDir, art: Any, port: int) -> None:
    assert serve(run, port, "--no-wait").wait(LONG) == 0
    assert answers(port)
    pid = Store(run).all()[0].made["pid"]
    assert serve(run, port, "--no-wait").wait(LONG) == 0
    for words in ([f"port={port}"], ["port=1", "--no-wait"]):
        refused = art("deploy", "--to", "serve", *words, *LAST)
        said = str(refused.exception)
        assert f":{port}/v1, by process {pid}, until `art undeploy`" in said, said
    config = run.config.read_text()
    (run.root.parents[2] / "again.yaml").write_text(config)
    again = Art(run.root.parents[2], "again.yaml", "--overwrite", "--yes")
    assert again.wait(LONG) == EXIT_USAGE and f"{NAME} by process {pid}" in again.output
    assert art("undeploy", "--yes").exit_code == 0
    nobody_is_left(run)
    assert not answers(port) and leftovers(run) == []


TARGETS = {
    "merged": ["--to", "merged"],
    "folder": ["--to", "merged", "folder=there"],
    "serve": ["--to", "serve", "--no-wait"],
}


@pytest.mark.timeout(0)  # it lasts as long as it is told to
@pytest.mark.parametrize("kind", TARGETS)
def test_killed_at_any_moment_it_ends_the_same(run: RunDir, art: Any, port: int, kind: str) -> None:
    rng = random.Random(kind)
    words = [*TARGETS[kind], *LAST, *([f"port={port}"] if kind == "serve" else [])]
    began = time.monotonic()
    command = start(run, "deploy", *words)
    assert command.wait(LONG) == 0, command.output
    seconds = time.monotonic() - began
    expected = weights(run)
    for kills in range(NUM_KILLS + 1):
        undo(run, rng, kills < NUM_KILLS)
        assert not Path(Store(run).all()[0].made.get("folder", "gone")).exists()
        assert leftovers(run) == [] and not (run.root.parents[2] / "there").exists()
        if kills == NUM_KILLS:
            break
        command = start(run, "deploy", *words)
        strike(command, rng.uniform(0.02, seconds))
        if command.wait(LONG) != 0:
            if kind != "serve":  # it may have been told already that it stays
                nobody_is_left(run)
            command = start(run, "deploy", *words)
            assert command.wait(LONG) == 0, command.output
        assert weights(run) == expected
        (known,) = json.loads(art("deployments", "--json").output)
        assert known["now"] == "ready" and answers(port) is (kind == "serve")
    nobody_is_left(run)


def weights(run: RunDir) -> str:
    """The checksums of what is deployed."""
    return (Path(Store(run).all()[0].made["folder"]) / SUMS).read_text()


def strike(command: Art, seconds: float) -> None:
    moment = time.monotonic() + seconds
    while command.is_alive() and time.monotonic() < moment:
        time.sleep(0.002)
    command.signal(signal.SIGKILL)


def undo(run: RunDir, rng: random.Random, is_killed: bool) -> None:
    """`art undeploy`, killed and begun again."""
    command = start(run, "undeploy", "--yes")
    if is_killed:
        strike(command, rng.uniform(0.0, 1.0))
    if command.wait(LONG) != 0:
        command = start(run, "undeploy", "--yes")
        # It may have been killed after the last of it.
        assert command.wait(LONG) == 0 or "nothing is deployed" in command.output, command.output


class _Stopped:
    """A target whose server has stopped."""

    def state(self, _: Deployment) -> str:
        return "stopped"


@pytest.mark.parametrize("undeployed", [True, False])
def test_a_command_waits_for_the_record_of_an_undeploy_that_stopped_its_server(
    run: RunDir, undeployed: bool
) -> None:
    store = Store(run)
    served = store.new("serve", NAME, 1)
    served.state, served.made = "ready", {"pid": 1, "started": "1"}
    entered, failures = threading.Event(), list[str]()

    def stay() -> None:
        entered.wait(LONG)
        try:
            _stay(store, _Stopped(), served)  # type: ignore[arg-type]
        except ArtError as e:
            failures.append(str(e))

    command = threading.Thread(target=stay)
    command.start()
    with store.alone("serve", NAME):
        store.keep(served)
        entered.set()
        command.join(0.5)
        assert command.is_alive()  # the record still says that it serves
        if undeployed:
            store.keep(dataclasses.replace(served, state="stopped", made={}))
    command.join(LONG)
    assert ["by itself" in said for said in failures] == ([] if undeployed else [True])
