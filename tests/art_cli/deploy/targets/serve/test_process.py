"""Which process a deployment is served by: it alone is ended, and by nobody else's record."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from art_cli.deploy.base import Deployment
from art_cli.deploy.targets.serve.process import LOCK, LOG, ServerProcess, end_process, is_alive
from art_cli.errors import ArtError

LONG = 100.0  # seconds: it is only there lest a test hang
SLEEP = [sys.executable, "-S", "-c", "print('up', flush=True); import time; time.sleep(3600)"]
STUBBORN = [
    *(sys.executable, "-S", "-c"),
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('up', flush=True); time.sleep(3600)",
]
STARTER = """
import sys, time
from pathlib import Path
from art_cli.deploy.base import Deployment
from art_cli.deploy.targets.serve.process import ServerProcess
deployment = Deployment(target="serve", name="mine", step=1, home=sys.argv[1])
server = ServerProcess(["sleep", "3600"], {}, deployment)
if "stay" in sys.argv:
    server.let_go()
print(deployment.made["pid"], deployment.made["started"], flush=True)
if "end" not in sys.argv:
    time.sleep(3600)
"""


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Deployment]:
    """A deployment whose server is a process that sleeps."""
    served = start(tmp_path / "home", SLEEP)
    yield served
    if is_alive(served):
        end_process(served)


def start(home: Path, words: list[str]) -> Deployment:
    home.mkdir()
    deployment = Deployment(target="serve", name="mine", step=1, home=str(home))
    server = ServerProcess(words, {}, deployment)
    until(lambda: (home / LOG).read_text() == "up\n")
    server.forget()
    return deployment


def moved_to(deployment: Deployment, home: Path) -> Deployment:
    """What the record of a folder says that is elsewhere."""
    return replace(deployment, home=str(home), made=dict(deployment.made))


def test_it_is_ended_with_all_that_it_has_started(served: Deployment) -> None:
    pid = served.made["pid"]
    assert is_alive(served)
    end_process(served)
    assert not is_alive(served) and served.made == {}
    end_process(served)  # again: nothing
    with pytest.raises(ProcessLookupError):
        os.waitpid(pid, 0)
        os.kill(pid, 0)


def test_one_that_hears_nothing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = start(tmp_path / "home", STUBBORN)
    monkeypatch.setattr("art_cli.deploy.targets.serve.process.STOP_TIMEOUT", 1.0)
    end_process(served)
    assert not is_alive(served)


def test_a_copy_of_its_folder_is_served_by_nobody(served: Deployment, tmp_path: Path) -> None:
    copy = moved_to(served, shutil.copytree(served.home, tmp_path / "copy"))
    assert (tmp_path / "copy" / LOCK).exists() and not is_alive(copy)
    end_process(copy)
    assert copy.made == {} and is_alive(served)


def test_a_folder_that_was_moved_is_still_served(served: Deployment, tmp_path: Path) -> None:
    moved = moved_to(served, Path(served.home).rename(tmp_path / "moved"))
    assert is_alive(moved)
    end_process(moved)
    assert not is_alive(moved)


def test_a_record_ends_no_process_of_another(served: Deployment, tmp_path: Path) -> None:
    """Neither by its id and start alone, nor by its name in the command line."""
    (tmp_path / "evil").mkdir()
    evil = moved_to(served, tmp_path / "evil")
    end_process(evil)
    assert is_alive(served)
    (tmp_path / "evil" / LOCK).symlink_to(Path(served.home) / LOCK)
    for made in ({}, {"pid": served.made["pid"]}, {"pid": os.getppid(), "started": "1"}):
        evil.made = made
        assert not is_alive(evil)  # a link is no lock
        end_process(evil)
        assert is_alive(served)


def test_an_id_that_another_process_got_later_is_not_taken_for_it(served: Deployment) -> None:
    with subprocess.Popen(["sleep", "3600"]) as other:
        try:
            later = moved_to(served, Path(served.home))
            later.made["pid"] = other.pid  # the start is that of the server
            with pytest.raises(ArtError, match="End it where it was started"):
                end_process(later)
            assert other.poll() is None and is_alive(served)
        finally:
            other.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("stays", [False, True])
def test_it_ends_with_its_starter_unless_that_lets_go_of_it(
    tmp_path: Path, number: int, stays: bool
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("this process ignores it, and so do those that it starts: nohup")
    words = [sys.executable, "-c", STARTER, str(tmp_path), *["stay"] * stays]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        pid, _, started = starter.stdout.readline().strip().partition(" ")
        made = {"pid": int(pid), "started": started}
        served = Deployment(target="serve", name="mine", step=1, home=str(tmp_path), made=made)
        assert is_alive(served)
        starter.send_signal(number)
        starter.wait(LONG)
    if stays:
        time.sleep(0.5)
        assert is_alive(served)
        end_process(served)
    until(lambda: not is_alive(served))


def test_one_that_is_let_go_of_outlives_a_starter_that_ends_at_once(tmp_path: Path) -> None:
    """Again and again: what the guard hears first must not matter."""
    for number in range(5):
        home = tmp_path / str(number)
        home.mkdir()
        words = [sys.executable, "-c", STARTER, str(home), "stay", "end"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=LONG, check=True)
        pid, _, started = said.stdout.strip().partition(" ")
        made = {"pid": int(pid), "started": started}
        served = Deployment(target="serve", name="mine", step=1, home=str(home), made=made)
        assert is_alive(served)
        end_process(served)
        assert not is_alive(served)
