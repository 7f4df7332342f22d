"""Commands about clusters, as far as they go without SkyPilot."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from short_run import CONFIG
from typer.testing import CliRunner, Result

from art_cli.cli.main import app

COMMANDS = ["launch-cluster", "clusters", "cluster", "cancel", "run"]
without_sky = pytest.mark.skipif(
    importlib.util.find_spec("sky") is not None, reason="SkyPilot is installed"
)


@pytest.fixture
def art(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs `art` in a folder with config.yaml."""
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(CONFIG)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def imported(*arguments: str) -> set[str]:
    """The packages that a command has imported at its end."""
    code = (
        "import atexit, sys; from art_cli.cli.main import main; "
        "atexit.register(lambda: print(*{m.split('.')[0] for m in sys.modules})); main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_cloud_command_costs_what_any_help_costs(command: str) -> None:
    found = imported(command, "--help")
    assert not found & {"sky", "torch", "transformers"}
    others = imported("runs", "--help")  # what typer takes for any command
    assert found - sys.stdlib_module_names <= others


@without_sky
@pytest.mark.parametrize(
    "arguments",
    [
        ["clusters"],
        ["cluster", "down", "mine"],
        ["launch-cluster", "config.yaml", "--gpus", "H100:1"],
        ["run", "config.yaml", "--on", "mine"],
    ],
    ids=" ".join,
)
def test_without_skypilot_it_says_what_to_install(art, arguments: list[str]) -> None:
    result: Result = art(*arguments)
    assert result.exit_code == 1 and result.exception is not None
    assert result.exception.exit_code == 3  # type: ignore[attr-defined]
    assert "pip install 'art-cli[cloud]'" in str(result.exception)
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "config.yaml", "--attach"], "are of a run on a cluster; name it: --on NAME"),
        (["run", "config.yaml", "--on", "a", "--smoke"], "--from-step are of a run here"),
        (["run", "config.yaml", "--on", "a b"], "backend.cluster: expected a name of letters"),
        (["cancel", "config.yaml"], "runs/test/short was not sent to a cluster from here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_told_before_anything_is_asked(
    art, arguments: list[str], message: str
) -> None:
    result: Result = art(*arguments)
    assert result.exception is not None and message in str(result.exception)
    assert result.exception.exit_code == 2  # type: ignore[attr-defined]


def test_the_resolved_config_of_a_run_on_a_cluster_can_be_seen(art) -> None:
    printed = art("run", "config.yaml", "--on", "mine", "--dry-run").stdout
    assert "cluster: mine" in printed and "override" in printed
    assert json.dumps("mine") not in printed
