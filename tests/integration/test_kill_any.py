"""kill -9 of any process of a run or a command: begun again it ends the same, and nobody is left.

test_kill.py kills runs that are one process. Here are those that have others beside them: ranks, a
judge's server, an env's process, programs; and commands that evaluate, merge, upload and write
tasks. ART_KILLS says how often
each is killed (3, unless given).
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from documents_server import command, documents, write_documents
from hub_server import LoopbackHub
from short_run import COLOURS, CONFIG, Art, at_work_in, results

NUM_KILLS = int(os.environ.get("ART_KILLS", "3"))
TESTS = COLOURS.parent
GONE = 300.0  # seconds in which everything must have ended
RANKS = CONFIG.replace("train: {", "train: {num_processes: 2, ")
JUDGED = f"""{CONFIG}
judge:
  model: openai/length
  command: ["{{python}}", "{TESTS / "judge_process.py"}", "{{port}}"]
  cache: false
  retries: 1
  on_failure: stop
reward: {{env: 1.0, judge: 0.5}}
"""
ELSEWHERE = CONFIG.replace('Opposites"', f'Opposites", python: "{sys.executable}"')
AGENT = f"{sys.executable} -I -S {TESTS / 'hostile' / 'agent.py'}"
# The shell outlives the program, so that it is not the program that is waited for.
PROGRAMS = f"{CONFIG}agent: {{use: program, command: [sh, -c, '{AGENT}; true']}}\n"
ADAPTER = CONFIG.replace("adapter: null", "adapter: {rank: 4}").replace(
    "sft: {", "sft: {weights: all, "
)
pytestmark = pytest.mark.timeout(0)  # it lasts as long as it is told to


@pytest.mark.parametrize("config", [RANKS, JUDGED, ELSEWHERE], ids=["ranks", "judge", "env"])
def test_a_run_of_several_processes_ends_the_same(config: str, tmp_path: Path) -> None:
    whole = begin(tmp_path / "whole", config)
    seconds = timed(whole)
    expected = lasting(whole)
    rng, kills, art, number = random.Random(1), 0, whole, count()
    while kills < NUM_KILLS:
        art = begin(tmp_path / f"killed-{next(number)}", config)
        while (code := killed(art, tmp_path, rng, seconds, kills)) != 0:
            kills += 1
            # 2, 3: an env's process, a server, before the start
            assert code in (1, 2, 3, -signal.SIGKILL), art.output
            art = begin(art.folder, config)
        assert lasting(art) == expected
    assert "Traceback" not in art.output


def test_a_run_of_programs_loses_no_episode(tmp_path: Path) -> None:
    seconds = timed(begin(tmp_path / "whole", PROGRAMS))
    rng, kills, number = random.Random(2), 0, count()
    while kills < NUM_KILLS:
        art = begin(tmp_path / f"killed-{next(number)}", PROGRAMS)
        while (code := killed(art, tmp_path, rng, seconds, kills)) != 0:
            kills += 1
            assert code == -signal.SIGKILL, art.output
            art = begin(art.folder, PROGRAMS)
        rows = [row for row in art.run.read_metrics() if "data/groups" in row]
        assert [row["training_step"] for row in rows] == list(range(1, 9))
        for step in range(1, 9):
            assert len(art.run.read_trajectories(step, "train")) == 16
        kills += 1  # a program may have been killed, which the run outlives
        # No folder of a program that was running. One of an episode whose program had yet to begin,
        # or had just ended, may stay.
        assert list((art.folder / "tmp").glob("art-*/running")) == []


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has an adapter."""
    art = begin(tmp_path_factory.mktemp("run"), ADAPTER)
    assert art.wait(300) == 0, art.output
    return art.folder


def test_an_evaluation_ends_the_same(run: Path, tmp_path: Path) -> None:
    def start(folder: Path) -> Art:
        flags = ["runs/test/short", "--episodes", "200", "--json"]
        return Art(folder, *flags, command="eval")

    again_and_again(run, tmp_path, start, attempts)


def test_merged_weights_are_whole(run: Path, tmp_path: Path) -> None:
    def start(folder: Path) -> Art:
        return Art(folder, "runs/test/short", "--to", "merged", "--yes", command="deploy")

    again_and_again(run, tmp_path, start, weights)


def test_an_upload_is_whole(run: Path, tmp_path: Path) -> None:
    with LoopbackHub() as hub:
        begun: set[Path] = set()

        def start(folder: Path) -> Command:
            if folder not in begun:
                hub.repos.clear()
            begun.add(folder)
            flags = ["deploy", "runs/test/short", "--to", "hf", "--yes"]
            where = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token, "HF_HUB_DISABLE_XET": "1"}
            return Command(folder, flags, where)

        def uploaded(_: Path) -> dict[str, str]:
            (files,) = hub.repos.values()
            return {name: digest(content) for name, content in files.items()}

        again_and_again(run, tmp_path, start, uploaded)


def test_tasks_are_written_whole_and_the_server_loses_nothing(tmp_path: Path) -> None:
    rng, kills, number = random.Random(4), 0, count()

    def start(folder: Path) -> Command:
        flags = [
            "scenarios",
            "--mcp",
            command(folder / "documents"),
            "--exact",
            "--num",
            "5",
            "--out",
            "tasks.jsonl",
        ]
        return Command(folder, flags, {"TMPDIR": str(folder / "tmp")})

    def fresh(name: str) -> Path:
        (tmp_path / name / "tmp").mkdir(parents=True)
        write_documents(tmp_path / name / "documents")
        return tmp_path / name

    whole = fresh("whole")
    seconds = timed(start(whole))
    expected, kept = (whole / "tasks.jsonl").read_text(), documents(whole / "documents")
    while kills < NUM_KILLS:
        folder = fresh(f"killed-{next(number)}")
        process = start(folder)
        while (code := killed(process, tmp_path, rng, seconds, kills)) != 0:
            kills += 1
            assert code in (-signal.SIGKILL, 1, 2, 3), process.output  # its server was killed
            assert "Traceback" not in process.output
            written = folder / "tasks.jsonl"
            assert not written.exists() or written.read_text() == expected
            process = start(folder)
        assert (folder / "tasks.jsonl").read_text() == expected
        assert documents(folder / "documents") == kept
        kills += 1  # the server may have been killed after its last answer


def lasting(art: Art) -> dict[str, Any]:
    """What a run comes to, but for how quickly its judge answered."""
    found = results(art.run)
    for row in found["metrics"]:
        row.pop("judge/latency_s", None)
    return found


def again_and_again(
    run: Path, tmp_path: Path, start: Callable[[Path], Any], found: Callable[[Path], Any]
) -> None:
    """Kill a command on a copy of a run until it has been killed often enough; compare."""
    rng, kills, number = random.Random(3), 0, count()
    whole = shutil.copytree(run, tmp_path / "whole")
    process = start(whole)
    seconds = timed(process)
    expected = found(whole)
    assert expected
    while kills < NUM_KILLS:
        folder = shutil.copytree(run, tmp_path / f"killed-{next(number)}")
        process = start(folder)
        while (code := killed(process, tmp_path, rng, seconds, kills)) != 0:
            kills += 1
            assert code == -signal.SIGKILL, process.output
            process = start(folder)
        assert found(folder) == expected


class Command:
    """`art` in a process of its own, where what it imports depends on the environment."""

    def __init__(self, folder: Path, arguments: list[str], env: dict[str, str]) -> None:
        with open(folder / "out.txt", "ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from art_cli.cli.main import main; main()", *arguments],
                cwd=folder,
                env=os.environ | env,
                stdout=out,
                stderr=out,
            )
        self.pid = self._process.pid
        self.folder = folder

    @property
    def output(self) -> str:
        """What all processes of this folder have printed."""
        return (self.folder / "out.txt").read_text()

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """The exit code, negative for a signal."""
        return self._process.wait(seconds)


def begin(folder: Path, config: str) -> Art:
    """`art run --resume`, whose temporary files are in a folder of its own."""
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(config)
    return Art(folder, "config.yaml", "--resume", env={"TMPDIR": str(folder / "tmp")})


def timed(process: Any) -> float:
    """The seconds that it takes when it is left alone."""
    began = time.monotonic()
    assert process.wait(600) == 0, process.output
    return time.monotonic() - began


def killed(process: Any, folder: Path, rng: random.Random, seconds: float, kills: int) -> int:
    """Kill one of its processes after a while -> the exit code. Nobody is left behind then.

    After enough kills it is left alone: on a machine that has become slower than it was when the
    seconds were taken, no life would reach its end.
    """
    if kills < NUM_KILLS:
        strike(process, rng, seconds)
    code = process.wait(600)
    deadline = time.monotonic() + GONE
    while (left := at_work_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    return code


def strike(process: Any, rng: random.Random, seconds: float) -> None:
    """Kill it, or a process below it, within so many seconds."""
    moment = time.monotonic() + rng.uniform(0.1, seconds)
    while process.is_alive() and time.monotonic() < moment:  # it may be quicker than it was
        time.sleep(0.01)
    victims = [process.pid, *descendants(process.pid)]
    victim = victims[0] if rng.random() < 0.5 else rng.choice(victims)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes below one."""
    parents: dict[int, list[int]] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            of = int(file.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(of, []).append(int(file.parent.name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


def attempts(folder: Path) -> dict[str, Any]:
    """Each evaluated episode, but for what it took."""
    found: dict[str, Any] = {}
    for file in sorted((folder / "runs").rglob("*.jsonl")):
        for row in map(json.loads, file.read_text().splitlines() if "eval" in str(file) else []):
            if "scenario" in row:
                row.pop("seconds")
                key = f"{file.name} {row['digest']} {row['trial']}"
                assert found.setdefault(key, row) == row
    return found


def weights(folder: Path) -> dict[str, str]:
    """The files that were written."""
    (merged,) = (folder / "runs").rglob("weights")
    return {p.name: digest(p.read_bytes()) for p in merged.iterdir()}


def digest(content: bytes) -> str:
    """To compare files by."""
    return hashlib.sha256(content).hexdigest()
