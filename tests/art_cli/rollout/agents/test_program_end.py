"""Programs as agents: nothing of them is left, however they or the run end; what they may print."""

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

import pytest
from hosted import Alone

from art_cli.rollout.agents import program
from art_cli.rollout.agents.hosted import CrashError
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.rollout.groups import why_none
from art_cli.types import Scenario, Trajectory

STARTER = """
import asyncio, json, sys
from types import SimpleNamespace
from art_cli.rollout.agents.program import ProgramRunner
from art_cli.cli.run import _stop_on_interrupt
from art_cli.types import Scenario, Trajectory

said = lambda word: print(word, flush=True)
_stop_on_interrupt(SimpleNamespace(requested=False), SimpleNamespace(say=said, finish=said))
runner = ProgramRunner(json.loads(sys.argv[1]), [])
trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))
async def work_in(*_): pass
hosted = SimpleNamespace(opening=[], tools=[], work_in=work_in)
asyncio.run(runner.run(hosted, "http://127.0.0.1:9", trajectory))
"""
# A child, a child with a session of its own, and an orphan with one: each writes its process id.
FAMILY = """
deep() { setsid sh -c 'echo $$ > orphan; exec sleep 1000' & }
sh -c 'echo $$ > child; exec sleep 1000' &
setsid sh -c 'echo $$ > far; exec sleep 1000' &
(deep)
while ! [ -s child -a -s far -a -s orphan ]; do sleep 0.02; done
"""
NAMES = ("child", "far", "orphan")

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no subreaper")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path


def play(code: str, then: Callable[[asyncio.Task[Any]], Any] | None = None) -> Trajectory:
    """Run an episode of a shell's script; `then` may cancel it."""
    trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))
    runner = ProgramRunner(["sh", "-c", code], [])

    async def go() -> None:
        hosted: Any = Alone()
        run = asyncio.ensure_future(runner.run(hosted, "http://127.0.0.1:9", trajectory))
        try:
            if then:
                await asyncio.to_thread(until, lambda: Path("ready").exists())
                then(run)
            await run
        finally:
            await hosted.close()

    asyncio.run(go())
    return trajectory


def until(is_so: Callable[[], object]) -> None:
    limit = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.01)


def is_there(name: str) -> bool:
    """Whether the process lives whose id is in the file."""
    try:
        stat = Path(f"/proc/{Path(name).read_text().strip()}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@linux
@pytest.mark.parametrize("how", ["kill -9", "the second Ctrl-C"])
def test_a_run_that_ends_at_once_leaves_nothing_of_a_program(folder: Path, how: str) -> None:
    command = ["sh", "-c", f"cd {folder}; {FAMILY} sh -c 'echo $$ > self; exec sleep 1000'; true"]
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, json.dumps(command)],
        stdout=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
    )
    until(lambda: Path("self").exists() and Path("self").read_text())
    assert all(map(is_there, (*NAMES, "self"))) and list((folder / "tmp").iterdir())
    if how == "kill -9":
        starter.kill()
    else:
        assert starter.stdout
        starter.send_signal(signal.SIGINT)
        assert b"stopping after this step" in starter.stdout.readline()
        starter.send_signal(signal.SIGINT)
    starter.communicate(timeout=120)
    until(lambda: not any(map(is_there, (*NAMES, "self"))))
    until(lambda: not list((folder / "tmp").iterdir()))


@linux
def test_children_with_a_session_of_their_own_end_with_the_program() -> None:
    assert play(f"cd {os.getcwd()}; {FAMILY}").metrics["exit_code"] == 0
    assert not any(map(is_there, NAMES))


def test_a_program_may_end_by_itself_when_it_is_asked_to(folder: Path) -> None:
    code = "trap 'echo asked > answer; exit 3' TERM; echo > ready; while :; do sleep 0.05; done"
    with pytest.raises(asyncio.CancelledError):
        play(f"cd {folder}; {code}", then=lambda run: run.cancel())
    assert Path("answer").read_text() == "asked\n"
    assert not list((folder / "tmp").iterdir())


def test_a_signal_and_an_exit_code_are_told_as_they_are() -> None:
    for code, told in (("kill -9 $$", -9), ("kill -SEGV $$", -11), ("exit 7", 7)):
        with pytest.raises(CrashError, match=f"ended with exit code {told}; it printed:"):
            play(code)


def test_a_program_that_cannot_be_started_says_why(folder: Path) -> None:
    (folder / "agent").write_text("#!/no/such/interpreter\n")
    (folder / "agent").chmod(0o755)
    runner = ProgramRunner([str(folder / "agent")], [])
    trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))
    with pytest.raises(CrashError, match=r"exit code 127; it printed:\n  cannot start .*No such"):
        asyncio.run(runner.run(Alone(), "http://127.0.0.1:9", trajectory))


def test_a_program_that_prints_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_PRINTED", 2**20)
    with pytest.raises(CrashError) as raised:
        play("yes the last of it")
    first, *last = str(raised.value).splitlines()
    most = "1 MiB, the most that an episode may print"
    assert first == f"was killed: it printed more than {most}; the last of it:"
    assert last[-2] == "  the last of it" and len(str(raised.value)) < 8000


def test_what_a_program_printed_last_is_shown_when_all_have_failed() -> None:
    script = "import sys; print(*range(50), sep='\\n', flush=True); {}['no such key']"
    with pytest.raises(CrashError) as raised:
        play(f'{sys.executable} -c "{script}"')
    told = why_none([None, f"the agent failed: {raised.value}", "another"]).splitlines()
    assert told[:2] == [
        "all 3 episodes failed, the first with:",
        "  the agent failed: ended with exit code 1; it printed:",
    ]
    assert told[-1].strip() == "KeyError: 'no such key'" and "    49" in told and len(told) < 20
