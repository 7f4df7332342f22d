"""`art` as a user has it who has SkyPilot and, for a cloud, the Slurm cluster of slurm.sh."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ART = str(Path(sys.executable).with_name("art"))
CLUSTER = Path(os.environ["ART_TEST_CLUSTER"])
COLOURS = Path(__file__).with_name("colours.py")
SMALL = "{infra: slurm/loop, cpus: 2, memory: 4}"  # a machine
IMPATIENT = """
from art_cli.backends.cloud import stall
from art_cli.cli.main import main
stall.SILENCE = {}
main()
"""
CONFIG = """
project: sky
env: {use: env.py:Mine}
model:
  base: tiny
  adapter: null
  tiny: {hidden_size: 32, num_layers: 1, vocab_size: 300}
sft: {num_demonstrations: 200, epochs: 4, learning_rate: 5.0e-3, optimizer: muon}
sampling: {max_tokens: 6}
train: {steps: 3, scenarios_per_step: 4, group_size: 4, learning_rate: 4.0e-3}
eval: {every: 3, episodes: 8}
checkpoint: {every: 1, keep: 2}
"""
# 5000 steps at full speed take two minutes, and were over once before they were to be cancelled.
ENDLESS = ("env.use=env.py:Patient", "train.steps=1000000", "eval=null", "checkpoint.every=10")
ENV = """
import asyncio
import os
from pathlib import Path

from colours import Opposites


class Mine(Opposites):
    async def score(self, trajectory):
        self.metrics["came_along"] = float(Path("notes.txt").exists())
        self.metrics["left_out"] = float(not Path("data.bin").exists())
        self.metrics["has_secret"] = float(os.environ.get("MY_KEY") == "k-123")
        return await super().score(trajectory)


class Patient(Mine):
    @classmethod
    def demonstrations(cls, cfg, num):
        return Mine.demonstrations(cfg, num)  # one after another: a second each would be minutes

    async def score(self, trajectory):
        await asyncio.sleep(1)  # who runs without end leaves the machine to others
        return await super().score(trajectory)
"""


class User:
    """A folder of one's own, and what one types in it."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.environment = os.environ | environment
        for name, text in {
            "config.yaml": CONFIG,
            "env.py": ENV,
            "colours.py": COLOURS.read_text(),
            "notes.txt": "mine",
            "data.bin": "large",
            ".env": "MY_KEY=k-123\n",
            ".skyignore": "data.bin\n.env\nruns\n",
        }.items():
            (folder / name).write_text(text)

    def start(self, *arguments: str, silence: float | None = None) -> subprocess.Popen[str]:
        """`art` with these arguments; both its outputs are in .stdout. `silence`: how long SkyPilot
        may say nothing."""
        art = [ART] if silence is None else [sys.executable, "-c", IMPATIENT.format(silence)]
        return subprocess.Popen(
            [*art, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @staticmethod
    def sky(environment: dict[str, str], *arguments: str) -> int:
        """How SkyPilot's own command ends."""
        command = [str(Path(sys.executable).with_name("sky")), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, timeout=600).returncode

    def art(
        self, *arguments: str, code: int = 0, seconds: float = 900, silence: float | None = None
    ) -> str:
        """What it printed. It must end with `code`."""
        process = self.start(*arguments, silence=silence)
        try:
            printed, _ = process.communicate(timeout=seconds)
        finally:
            process.kill()
        assert process.returncode == code, printed
        assert "Traceback" not in printed, printed
        return printed


def slurm(*command: str) -> str:
    """What a command of Slurm prints."""
    environment = os.environ | {"SLURM_CONF": str(CLUSTER / "slurm" / "slurm.conf")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def jobs_of(name: str) -> list[str]:
    """The numbers of Slurm's jobs whose names begin so: those of a cluster, or of a managed job."""
    lines = slurm("squeue", "-h", "-o", "%i %j").splitlines()
    return [number for number, job in map(str.split, lines) if job.startswith(name)]


def read_until(process: subprocess.Popen[str], pattern: str) -> str:
    """What it prints up to a line with the pattern."""
    assert process.stdout
    seen = ""
    for line in process.stdout:
        seen += line
        if re.search(pattern, line):
            return seen
    raise AssertionError(f"ended before {pattern}: {seen}")


def eventually(condition: Callable[[], object], what: str, seconds: float = 900) -> None:
    """Wait for it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.5)
