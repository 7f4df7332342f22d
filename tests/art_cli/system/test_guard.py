"""What a process that was started by a run, or beside it, can read of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")

# Root can read everything, unless it lacks the capabilities that make it root.
POWERLESS = """
import ctypes, os, sys
for capability in range(64):
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
STARTER = """
import asyncio, json, os, sys
from types import SimpleNamespace
from art_cli.rollout.agents.build import make_runner
from art_cli.config.sections.agent import AgentConfig
from art_cli.types import Scenario, Trajectory

runner = make_runner(AgentConfig(use="program", command=["sh", "look"]))
trajectory = Trajectory(scenario=Scenario(id="a", split="train", seed=1))
async def work_in(*_): pass
hosted = SimpleNamespace(opening=[], tools=[], work_in=work_in)
asyncio.run(runner.run(hosted, "http://127.0.0.1:9", trajectory))
child = [sys.executable, "-c", "import os; print(os.environ['MY_KEY'])"]
import subprocess
said = subprocess.run(child, capture_output=True, text=True).stdout
print(json.dumps([trajectory.logs, os.environ["MY_KEY"], said]))
"""
# It looks at its guard and at the run, which has started that.
LOOK = """
run=$(cut -d' ' -f4 /proc/$PPID/stat)
for pid in $PPID $run; do
    for file in environ mem maps; do
        head -c 100000 /proc/$pid/$file | tr '\\000' '\\n' | grep -a MY_KEY
        (exec 3< /proc/$pid/$file) || echo no $file
    done
    readlink /proc/$pid/fd/0 > /dev/null || echo no fd
done
"""


def look(tmp_path: Path, *before: str) -> list[str]:
    (tmp_path / "look").write_text(LOOK)
    environment = os.environ | {"MY_KEY": "hush"}
    command = [sys.executable, *before, "-c", STARTER]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    logs, key, said = json.loads(run.stdout)
    assert (key, said) == ("hush", "hush\n")  # the run itself and its own children still have it
    return logs[0].splitlines()


@linux
def test_a_program_can_read_nothing_of_the_run_and_of_its_guard(tmp_path: Path) -> None:
    lines = look(tmp_path, "-c", POWERLESS)
    for closed in ("environ", "mem", "maps", "fd"):
        assert lines.count(f"no {closed}") == 2
    assert not [line for line in lines if "MY_KEY" in line]


@linux
def test_even_root_finds_no_key_in_the_environment_that_the_system_shows(tmp_path: Path) -> None:
    assert not [line for line in look(tmp_path) if "MY_KEY" in line]
