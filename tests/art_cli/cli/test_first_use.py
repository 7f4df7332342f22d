"""An env that makes its scenarios at the first use says so, on the terminal and nowhere else."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from short_run import CONFIG

ENV = """
from art_cli import Env, Scenario
from art_cli.system.progress import tell

class Slow(Env):
    @classmethod
    def scenarios(cls, cfg, split):
        for n in range(3):
            tell("making the scenarios of Slow", n + 1, 3)
        return [Scenario(id=f"{split}-0", split=split, seed=0)]

    @classmethod
    def demonstrations(cls, cfg, num):
        return [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]]

    async def start(self):
        return "hello"

    async def score(self, trajectory):
        return 1.0
"""
QUICK = "sft=null eval=null train.steps=1 train.scenarios_per_step=1"
VALIDATE = ("validate", "config.yaml", "env.use=env.py:Slow", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "env.py").write_text(ENV)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        VALIDATE,
        ("run", "config.yaml", "env.use=env.py:Slow", *QUICK.split(), "--json"),
        ("envs", "check", "env.py:Slow", "--json"),
    ],
    ids=lambda words: words[0],
)
def test_the_terminal_is_told_and_json_is_not(folder: Path, words: tuple[str, ...]) -> None:
    ours, its = pty.openpty()
    out = folder / "out.json"
    with out.open("w") as file:
        process = subprocess.Popen(art(words), cwd=folder, stdout=file, stderr=its)
    os.close(its)
    told = b""
    while more := read(ours):
        told += more
    process.wait()
    assert b"making the scenarios of Slow 2/3" in told
    assert isinstance(json.loads(out.read_text()), dict)


def test_in_a_pipe_nothing_short_is_told(folder: Path) -> None:
    result = subprocess.run(art(VALIDATE), cwd=folder, capture_output=True, text=True, check=True)
    assert json.loads(result.stdout)["valid"] is True and result.stderr == ""


def art(words: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-c", "from art_cli.cli.main import main; main()", *words]


def read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # whoever held the other end has gone
        return b""
