"""`art init`: the folder it makes runs as it stands."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from art_cli.cli.main import COMMANDS

ART = (sys.executable, "-c", "from art_cli.cli.main import main; main()")


def art(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ART, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module", params=["tools", "game"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that `art init` has made."""
    folder = tmp_path_factory.mktemp("init")
    result = art(folder, "init", "new/task", "--kind", request.param)
    assert result.returncode == 0, result.stderr
    assert "cd new/task\n" in result.stdout and "art run config.yaml" in result.stdout
    return folder / "new" / "task"


def test_there_is_an_env_a_config_tests_and_how_to_use_them(made: Path) -> None:
    assert {p.name for p in made.iterdir()} >= {"README.md", "config.yaml", "env.py", "test_env.py"}


@pytest.mark.slow
def test_its_tests_pass(made: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and " passed" in result.stdout


@pytest.mark.slow
def test_its_env_passes_every_check(made: Path) -> None:
    result = art(made, "envs", "check", "config.yaml", "--json")
    statuses = {f["status"] for f in json.loads(result.stdout)["findings"]}
    assert result.returncode == 0 and statuses == {"ok"}


@pytest.mark.slow
def test_its_config_is_valid_and_learns_and_art_why_finds_nothing_serious(made: Path) -> None:
    assert art(made, "validate", "config.yaml").stdout == "ok: my-task/first\n"
    result = art(made, "run", "config.yaml", "--json")
    assert result.returncode == 0, result.stderr
    ended = json.loads(result.stdout)
    assert ended["finished"] is True and ended["final"]["reward"] > 0.85  # 0.65 to 0.72 untrained
    why = json.loads(art(made, "why", "runs/my-task/first", "--json").stdout)
    assert {finding["weight"] for finding in why["findings"]} <= {"notable"}


def test_every_command_of_its_readme_exists(made: Path) -> None:
    lines = (made / "README.md").read_text().splitlines()
    commands = {line.split()[1] for line in lines if line.startswith("    art ")}
    assert commands == {"envs", "validate", "run", "why", "show", "eval"}
    assert commands <= set(COMMANDS)


def test_the_default_is_an_agent_with_tools(tmp_path: Path) -> None:
    assert art(tmp_path, "init", "mine").returncode == 0
    assert "@tool()" in (tmp_path / "mine" / "env.py").read_text()
    assert art(tmp_path, "init", "other", "--kind", "song").returncode == 2


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "env.py").write_text("x = 1\n")
    result = art(tmp_path, "init", "mine")
    assert result.returncode == 2
    assert "mine is not empty (it has env.py), and nothing is ever overwritten" in result.stderr
    assert os.listdir(tmp_path / "mine") == ["env.py"]


def test_an_empty_folder_is_taken_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert art(tmp_path, "init", "empty").returncode == 0
    result = art(tmp_path, "init", "file")
    assert result.returncode == 2 and "file is a file; give a new or empty folder" in result.stderr
    assert art(tmp_path, "init").returncode == 2
