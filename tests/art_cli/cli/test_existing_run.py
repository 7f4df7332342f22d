"""`art run` where a run is already: it is shown at once, gone on with, or replaced."""

import errno
import json
import os
import pty
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from short_run import CONFIG
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.deploy.base import Deployment
from art_cli.errors import EXIT_INTERRUPTED, PreflightError, UsageError
from art_cli.runs.directory import RunDir
from art_cli.system.files import atomic_write
from art_cli.system.lock import hold
from art_cli.view import file

ROOT = Path(__file__).parents[3]
QUICK = "sft=null train.steps=2 train.scenarios_per_step=1 eval.every=2 eval.episodes=4"
RUN = ("run", "config.yaml", *QUICK.split())
Art = Callable[..., Result]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config and its finished run."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result = CliRunner().invoke(app, [*RUN, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    (folder / "said.json").write_text(result.stdout)
    return folder


@pytest.fixture
def art(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Art:
    """Run `art` in a copy of that folder."""
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return lambda *words: CliRunner().invoke(app, list(words))


def here() -> RunDir:
    return RunDir(Path("runs/test/short"))


def files() -> dict[str, bytes]:
    found = [p for p in here().root.rglob("*") if p.is_file() and p.name != "run.lock"]
    return {str(p): p.read_bytes() for p in found}


@pytest.mark.parametrize("flags", [[], ["--resume"]])
def test_a_finished_run_is_told_without_torch(art: Art, flags: list[str]) -> None:
    code = (
        "import atexit, sys; from art_cli.cli.main import main; "
        "atexit.register(lambda: print('torch' in sys.modules)); main()"
    )
    command = [sys.executable, "-c", code, *RUN, *flags]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == "False", result.stderr
    assert result.returncode == (0 if flags else 2)
    assert "done, step 2 of 2" in result.stdout + result.stderr


def test_resuming_a_finished_run_shows_what_it_came_to_and_changes_nothing(art: Art) -> None:
    before = files()
    shown = art(*RUN, "--resume").output
    for words in ("nothing was left to do", "untrained", "(step 0)", "(step 2)", "reward"):
        assert words in shown, shown
    for remedy in ("train.steps=4 --resume", "--overwrite", "art eval runs/test/short"):
        assert remedy in shown
    assert json.loads(art(*RUN, "--resume", "--json").stdout) == json.loads(
        Path("said.json").read_text()
    )
    assert files() == before


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_page_that_is_missing_or_old_is_written_by_resume(art: Art, json: list[str]) -> None:
    assert here().report.exists()
    here().report.unlink()
    shown = art(*RUN, "--resume", *json)
    assert here().report.read_text().endswith("</html>\n")
    assert json or "only its page was left to write" in shown.output
    here().report.write_text("of fewer steps")
    os.utime(here().report, (0, 0))
    art(*RUN, "--resume", *json)
    assert here().report.read_text().endswith("</html>\n")


def test_a_disk_that_is_full_for_the_page_leaves_it_to_resume(
    art: Art, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    here().report.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(file, "atomic_write", full)
        shown = art(*RUN, "--resume")
    assert shown.exit_code == 0 and "No space left" in shown.stderr
    assert art(*RUN, "--resume").exit_code == 0 and here().report.exists()


def test_the_page_of_a_run_that_was_killed_as_it_wrote_it_is_written_again(art: Art) -> None:
    half = here().root / ".report.html.1.tmp"
    half.write_text("<html>")
    assert art(*RUN, "--resume").exit_code == 0
    assert here().report.exists() and not half.exists()


def test_a_resumed_run_ends_with_the_table_that_an_unbroken_one_ends_with(art: Art) -> None:
    shown = art(*RUN, "train.steps=4", "--resume")
    assert shown.exit_code == 0, shown.exception
    assert "(step 0)" in shown.output and "(step 4)" in shown.output
    assert "4 held-out episodes" in shown.output


def test_a_run_whose_trajectories_were_removed_for_their_size_is_shown_all_the_same(
    art: Art,
) -> None:
    shutil.rmtree(here().trajectories)
    assert "val: held-out episodes" in art(*RUN, "--resume").output


def test_another_config_is_refused_before_torch_is_there(art: Art) -> None:
    result = art(*RUN, "seed=1", "--resume")
    assert isinstance(result.exception, UsageError)
    assert "seed: 0 -> 1" in str(result.exception) and "--overwrite" in str(result.exception)


def test_an_overwritten_run_begins_anew(art: Art) -> None:
    result = art(*RUN, "seed=1", "train.steps=1", "--overwrite", "--yes")
    assert result.exit_code == 0, result.exception
    assert "seed: 1" in here().config.read_text() and here().checkpoint_steps() == [1]
    assert [p.name for p in Path("runs/test").iterdir()] == ["short"]


@pytest.mark.parametrize("wrong", ["train.steps=many", "env.use=missing.py:Env"])
def test_nothing_is_removed_for_a_config_that_is_wrong(art: Art, wrong: str) -> None:
    before = files()
    assert isinstance(art(*RUN, wrong, "--overwrite", "--yes").exception, UsageError)
    assert files() == before


def test_nothing_is_removed_for_an_env_that_does_not_open(art: Art) -> None:
    before = files()
    text = "from art_cli import Env\nclass Mine(Env):\n    async def start(self): return 1 / 0\n"
    Path("env.py").write_text(text)
    result = art(*RUN, "env.use=env.py:Mine", "--overwrite", "--yes")
    assert "ZeroDivisionError" in str(result.exception) and files() == before


def test_a_run_that_goes_on_is_not_removed(art: Art) -> None:
    before = files()
    with here().lock():
        result = art(*RUN, "--overwrite", "--yes")
    assert isinstance(result.exception, PreflightError)
    assert f"is in use by process {os.getpid()}" in str(result.exception)
    with here().lock(), pytest.raises(PreflightError):
        here().remove()
    assert files() == before


def test_a_run_with_a_deployment_that_costs_money_is_not_removed(art: Art) -> None:
    deployment = Deployment(target="together", name="mine", step=2, billed_since="2026-01-01")
    file = here().deployment("together", "mine") / "deployment.json"
    atomic_write(file, json.dumps(asdict(deployment)))
    result = art(*RUN, "--overwrite", "--yes")
    assert isinstance(result.exception, UsageError)
    assert "together/mine" in str(result.exception) and "art undeploy" in str(result.exception)
    assert here().is_begun()


def test_the_user_is_asked_before_a_run_is_removed(art: Art) -> None:
    result = art(*RUN, "--overwrite")
    assert isinstance(result.exception, UsageError) and "add --yes" in str(result.exception)
    ours, its = pty.openpty()
    os.write(ours, b"n\n")
    code = "from art_cli.cli.main import main; main()"
    command = [sys.executable, "-c", code, *RUN, "--overwrite"]
    answered = subprocess.run(command, stdin=its, capture_output=True, text=True, check=False)
    assert answered.returncode == EXIT_INTERRUPTED and "nothing was done" in answered.stderr
    assert "Remove runs/test/short (done, step 2 of 2)" in answered.stdout
    assert here().is_begun()


def test_who_waits_for_the_lock_of_a_run_that_is_removed_gets_none(art: Art) -> None:
    run, raised = here(), threading.Event()

    def wait() -> None:
        try:
            with hold(run.lock_file, 60, lambda: UsageError("it is gone")):
                pass
        except UsageError:
            raised.set()

    waiting = threading.Thread(target=wait)
    with run.lock():
        waiting.start()
        while waiting.is_alive() and len(opened(run.lock_file)) < 2:
            time.sleep(0.001)
        run.root.rename(run.root.with_name("removed"))
    waiting.join(60)
    assert raised.is_set()


def opened(file: Path) -> list[str]:
    """The descriptors of this process that have opened a file."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += [each.name] if os.path.samefile(each, file) else []
        except OSError:  # it has been closed meanwhile
            continue
    return found


def test_the_quickstart_script_goes_on_unless_it_is_told_something_else(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    shutil.copy(ROOT / "scripts/quickstart", scripts)
    (scripts / "setup").write_text("")
    told = tmp_path / ".venv/bin/art"
    told.parent.mkdir(parents=True)
    told.write_text('#!/usr/bin/env bash\necho "$@"\n')
    told.chmod(0o755)

    def quickstart(*words: str) -> str:
        command = ["bash", str(scripts / "quickstart"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert quickstart() == "run configs/quickstart.yaml --resume\n"
    assert quickstart("--overwrite") == "run configs/quickstart.yaml --overwrite\n"
