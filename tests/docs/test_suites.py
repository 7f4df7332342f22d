"""What scripts/suites.py says of the tests that run only when something has changed."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "integration"


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("suites")


def test_what_has_passed_is_kept_as_digests_of_tests_that_exist() -> None:
    passed = json.loads((ROOT / ".ci" / "passed.json").read_text())
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in passed.values())
    assert [name for name in passed if not (ROOT / name).is_file()] == []


def test_a_test_with_an_environment_of_its_own_is_known(suites: Any) -> None:
    known = {p.relative_to(TESTS).as_posix() for p in suites.suites()}
    some = {"vllm/test_run.py", "skypilot/test_aws.py", "clients/test_styles.py"}
    assert known >= some | {"test_ollama.py", "test_trl_losses.py", "adapters/test_tau2.py"}
    assert not known & {"test_kill.py", "test_soak.py", "view/test_page.py"}


@pytest.mark.parametrize(
    ("test", "needed", "not_needed"),
    [
        (
            "vllm/test_contract.py",
            ["art_cli/engines/vllm/worker.py", "tests/engine_contract.py", "scripts/setup"],
            ["art_cli/view/server.py", "art_cli/cli/run.py"],
        ),
        (
            "vllm/test_run.py",
            ["art_cli/loop.py", "art_cli/cli/run.py", "envs/art_envs/order_desk.py"],
            ["art_cli/lab/study.py"],
        ),
        (
            "test_trl_losses.py",
            ["tests/integration/trl_losses.py", "docs/losses.md", "tests/own_venv.py"],
            ["art_cli/rollout/rollout.py"],
        ),
        (
            "clients/test_coding_agents.py",
            ["tests/integration/clients/package.json", "tests/integration/clients/stage.py"],
            ["tests/integration/clients/test_teams.py", "art_cli/loop.py"],
        ),
        (
            "test_ollama.py",
            ["tests/integration/ollama/main.go", "art_cli/deploy/targets/ollama/target.py"],
            ["art_cli/scenarios/written.py"],
        ),
        (
            "skypilot/test_lab.py",
            ["art_cli/lab/fleet.py", "tests/integration/skypilot/slurm.sh", "tests/sky_user.py"],
            [],
        ),
    ],
)
def test_a_test_depends_on_what_it_imports_starts_and_names(
    suites: Any, test: str, needed: list[str], not_needed: list[str]
) -> None:
    files = {p.relative_to(ROOT).as_posix() for p in suites.files_of(TESTS / test)}
    assert set(needed) - files == set() and set(not_needed) & files == set()
    assert all((ROOT / name).is_file() for name in files)


def test_a_test_is_due_until_it_is_recorded_and_when_a_file_changes(
    suites: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trl, kill = "tests/integration/test_trl_losses.py", "tests/integration/test_kill.py"
    passed = tmp_path / "passed.json"
    passed.write_text('{"tests/integration/test_gone.py": "0"}')
    monkeypatch.setattr(suites, "PASSED", passed)
    monkeypatch.delenv("CI_ALL", raising=False)

    def due(*words: str) -> list[str]:
        monkeypatch.setattr("sys.argv", ["suites.py", *words])
        assert suites.main() == 0
        return capsys.readouterr().out.split()

    assert {trl, kill} <= set(due())
    due("--record", trl, kill)
    assert list(json.loads(passed.read_text())) == [trl]  # the other is always due
    assert trl not in due() and kill in due()
    monkeypatch.setenv("CI_ALL", "1")
    assert trl in due()
    monkeypatch.delenv("CI_ALL")
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: read(p) + b"x" * (p.name == "losses.md"))
    assert trl in due()
    monkeypatch.setattr(Path, "read_bytes", read)
    assert trl not in due()
    monkeypatch.setitem(suites.PROJECT, "dependencies", ["torch==9"])
    assert trl in due()
