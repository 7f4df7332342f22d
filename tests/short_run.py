"""`art` in a process of its own, which a test can interrupt and kill.

The processes are forked from one that has imported torch: the first start takes seconds, the others
none.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from art_cli.cli.main import main
from art_cli.runs.directory import RunDir

COLOURS = Path(__file__).with_name("colours.py")
CONFIG = f"""
project: test
name: short
env: {{use: "{COLOURS}:Opposites"}}
model:
  base: tiny
  adapter: null
  tiny: {{hidden_size: 32, num_layers: 1, vocab_size: 300}}
sft: {{num_demonstrations: 200, epochs: 4, learning_rate: 5.0e-3, optimizer: muon}}
sampling: {{max_tokens: 6}}
train: {{steps: 8, scenarios_per_step: 4, group_size: 4, learning_rate: 4.0e-3}}
eval: {{every: 3, episodes: 8}}
checkpoint: {{every: 2, keep: 1}}
"""

SLOW = f"""
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {str(COLOURS.parent)!r})
from colours import Opposites

class Slow(Opposites):
    async def score(self, trajectory):
        if (pause := Path("pause")).exists():
            await asyncio.sleep(float(pause.read_text()))
        while (hold := Path("hold")).exists() and Path(hold.read_text() or "?").exists():
            Path("held").touch()
            await asyncio.sleep(0.01)
        return await super().score(trajectory)
"""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["art_cli.backends.local", "art_cli.cli.main", "art_cli.loop"])


def output_of(folder: Path) -> str:
    """What all processes of a folder have printed."""
    file = folder / "out.txt"
    return file.read_text() if file.exists() else ""


class Art:
    """A started `art` in a folder; what it prints goes to out.txt there."""

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        command: str = "run",
        largest_file: int | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        """No file can grow beyond `largest_file` bytes, as if the disk were full.

        `env` comes on top of the variables that the first process of all began with.
        """
        self.folder = folder
        self.run = RunDir(folder / "runs" / "test" / "short")
        self._process: ForkServerProcess = _context.Process(
            target=_main, args=(folder, [command, *arguments], largest_file, env or {})
        )
        self._process.start()
        atexit.register(self._process.kill)  # a failed test must not wait for it

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid
        return self._process.pid

    @property
    def output(self) -> str:
        """What all processes of this folder have printed."""
        return output_of(self.folder)

    def signal(self, number: int) -> None:
        """Send a signal, if it still lives."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def wait(self, seconds: float = 600) -> int:
        """The exit code, negative for a signal."""
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise AssertionError(f"art did not end within {seconds} s:\n{self.output}")
        return code


def with_pauses(folder: Path, config: str) -> str:
    """`config` with episodes that wait as many seconds as the file `pause` in the folder says.

    They also wait while there are both a file `hold` and the one that is named in it.
    """
    (folder / "env.py").write_text(SLOW)
    return config.replace(f"{COLOURS}:Opposites", "env.py:Slow")


def until(condition: Callable[[], bool], art: Art) -> None:
    """Wait for it, at most 5 minutes, while the process lives."""
    deadline = time.monotonic() + 300
    while not condition():
        assert art.is_alive() and time.monotonic() < deadline, art.output
        time.sleep(0.002)


def held_after(step: int, art: Art) -> None:
    """Wait until the episodes of a step lie there; those of the next wait while there is `hold`."""
    file = art.run.trajectory_file(step, "train")
    (art.folder / "new-hold").write_text(str(file))
    (art.folder / "new-hold").rename(art.folder / "hold")
    until(file.exists, art)
    assert art.run.trajectory_steps("train")[-1:] == [step]


def at_work_in(folder: Path) -> list[str]:
    """The processes whose working directory is in a folder."""
    found = []
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if link.readlink().is_relative_to(folder) and link.parent.name != "self":
                found.append((link.parent / "cmdline").read_text().replace("\0", " "))
    return [line for line in found if line]


def _main(
    folder: Path, arguments: list[str], largest_file: int | None, env: dict[str, str]
) -> None:
    os.chdir(folder)
    os.environ.update(env)
    tempfile.tempdir = None  # a TMPDIR among them is looked up
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    out = os.open("out.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = ["art", *arguments]
    main()


def results(run: RunDir) -> dict[str, Any]:
    """All that must not depend on how often a run was stopped: files by name, and metrics."""
    files = [*run.checkpoints.rglob("*"), *run.base.rglob("*"), *run.trajectories.iterdir()]
    found: dict[str, Any] = {
        str(p.relative_to(run.root)): p.read_bytes()
        for p in sorted(files)
        # transformers notes in the last one whether it was loaded from a folder
        if p.is_file() and p.name != "tokenizer_config.json"
    }
    for name in [n for n in found if n.endswith("/checksums.sha256")]:
        lines = found[name].splitlines()
        found[name] = [line for line in lines if not line.endswith(b"  tokenizer_config.json")]
    found["metrics"] = [
        {k: v for k, v in row.items() if not k.startswith(("time/", "throughput/"))}
        for row in map(json.loads, run.metrics.read_text().splitlines())
    ]
    return found
