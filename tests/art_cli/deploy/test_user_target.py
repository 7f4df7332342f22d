"""A deploy target of the user's own: its records can be read again, and its mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from art_cli.cli.deploy import _state
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.sections.model import ModelConfig
from art_cli.config.sections.train import TrainConfig
from art_cli.config.targets import read_target
from art_cli.deploy.base import Deployment, Source
from art_cli.deploy.build import make_target
from art_cli.deploy.lifecycle import deploy, undeploy
from art_cli.deploy.store import Store
from art_cli.errors import UsageError
from art_cli.runs.directory import RunDir
from art_cli.runs.maker import write_config
from art_cli.system.progress import silent

TARGET = """
from pathlib import Path
from art_cli.deploy.base import Plan

class Mine:
    def __init__(self, settings): pass
    def plan(self, source, name): return Plan(source=source, name=name, lines=[])
    def deploy(self, plan, job):
        job.deployment.made["id"] = "first"
        job.keep()
        pass
        job.deployment.state = "ready"
    def state(self, deployment): return "ready"
    def undeploy(self, job): return "nothing is left"
"""
NAME = "mine.py:Mine"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TARGET)
    parts: dict[str, Any] = {"env": EnvConfig(use="x"), "model": ModelConfig(base="tiny")}
    cfg = Experiment(name="r", train=TrainConfig(steps=1), **parts)
    run = RunDir.create(tmp_path / "runs" / "p" / "r")
    write_config(run, "name: r\n")
    return Source(run=run, experiment=cfg, env_settings=None, step=1, val_reward=None)


def deployed(source: Source) -> Deployment:
    target = make_target(NAME, {})
    return deploy(NAME, target, target.plan(source, "one"), silent, wait=True)


def test_it_is_deployed_listed_and_ended(source: Source) -> None:
    assert deployed(source).state == "ready"
    store = Store(source.run)
    [known] = store.all()
    assert (known.target, known.made) == (NAME, {"id": "first"})
    assert _state(source.run, known) == "ready"
    assert undeploy(store, make_target(known.target, {}), known, silent) == "nothing is left"
    assert store.all()[0].state == "stopped"


def test_a_list_runs_no_code_that_the_record_of_someone_elses_run_names(source: Source) -> None:
    deployed(source)
    source.run.config.write_text("name: other\n")
    Path("mine.py").write_text("raise SystemExit('run')")
    [known] = Store(source.run).all()
    assert "was made elsewhere: its target's code is not run" in _state(source.run, known)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 / 0", "mine.py:11: ZeroDivisionError"),
        ("job.deployment.made['port'] = 'a'", "made a wrong record: made.port is str"),
        ("job.deployment.made['where'] = Path('x')", "made.where is PosixPath"),
        ("job.deployment.state = 'on'; job.keep()", "made a wrong record: state: Input should be"),
        ("job.deployment.url = 3; job.keep()", "made a wrong record: url: Input should be"),
    ],
)
def test_what_it_does_wrong_is_told_and_its_record_stays_readable(
    source: Source, line: str, says: str
) -> None:
    Path("mine.py").write_text(TARGET.replace("        pass\n", f"        {line}\n"))
    with pytest.raises(UsageError, match=r"^deploy\.use: mine.py:Mine ") as raised:
        deployed(source)
    assert says in str(raised.value) and "Made so far: id" in str(raised.value)
    [known] = Store(source.run).all()
    assert (known.state, known.made) == ("failed", {"id": "first"})


def test_a_failing_undeploy_is_told_with_its_own_line(source: Source) -> None:
    Path("mine.py").write_text(TARGET.replace('return "nothing is left"', "return 1 + ''"))
    known, target = deployed(source), make_target(NAME, {})
    with pytest.raises(UsageError, match=r"^deploy\.use: mine.py:Mine .*mine.py:14: TypeError"):
        undeploy(Store(source.run), target, known, silent)


@pytest.mark.parametrize("method", ["plan", "state", "undeploy"])
def test_what_it_returns_is_checked(source: Source, method: str) -> None:
    before, _, after = TARGET.partition(f"    def {method}(")
    Path("mine.py").write_text(f"{before}    def {method}({after.partition(':')[0]}: return 7")
    methods = after.partition("\n")[2]
    with open("mine.py", "a") as file:
        file.write(f"\n{methods}")
    target, calls = make_target(NAME, {}), Deployment(target=NAME, name="one", step=1)
    with pytest.raises(UsageError, match=f"{method}\\(\\) returned int, expected"):
        if method == "plan":
            target.plan(source, "one")
        elif method == "state":
            target.state(calls)
        else:
            undeploy(Store(source.run), target, calls, silent)


def test_a_target_that_is_none_is_told_with_all_there_are() -> None:
    assert read_target("--to ", "merged") == "merged"
    assert read_target("--to ", "my/own.py:Mine") == "my/own.py:Mine"
    with pytest.raises(UsageError, match=r"--to merge: .* Did you mean 'merged'.*or FILE.py:NAME"):
        read_target("--to ", "merge")


def test_two_files_of_one_name_have_folders_of_their_own(source: Source) -> None:
    folders = {source.run.deployment(f"{d}/mine.py:Mine", "one").name for d in ("a", "b")}
    assert len(folders) == 2 and all(f.startswith("mine.Mine.") for f in folders)
