"""A run with an adapter that was really trained: what is deployed. Each test gets a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from short_run import CONFIG, Art
from together_server import LoopbackTogether
from typer.testing import CliRunner, Result

from art_cli.cli.main import app
from art_cli.deploy.targets.together import api as together_api
from art_cli.deploy.targets.together import target as together
from art_cli.deploy.targets.together import upload
from art_cli.runs.directory import RunDir

ADAPTER = ["model.adapter={rank: 4}", "sft.weights=all", "train.steps=2", "eval.every=1"]
ADAPTER += ["checkpoint={every: 1, keep: 2}"]  # both, whichever is the best
Deploy = Callable[..., Result]
Train = Callable[..., RunDir]


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    def run(*overrides: str) -> RunDir:
        folder = tmp_path_factory.mktemp("trained")
        (folder / "config.yaml").write_text(CONFIG)
        art = Art(folder, "config.yaml", *overrides)
        assert art.wait() == 0, art.output
        return art.run

    return run


@pytest.fixture(scope="session")
def trained(train: Train) -> RunDir:
    return train(*ADAPTER)


@pytest.fixture
def run(trained: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """In the present folder, as test/short."""
    monkeypatch.chdir(tmp_path)
    copy = Path("runs/test/short")
    shutil.copytree(trained.root, copy)
    config = copy / "config.yaml"
    config.write_text(config.read_text().replace(str(trained.root), str(copy.absolute())))
    return RunDir(copy)


@pytest.fixture
def art(run: RunDir) -> Deploy:
    """`art WORD RUN WORDS...`"""

    def invoke(command: str, *words: str) -> Result:
        return CliRunner().invoke(app, [command, str(run.root), *words])

    return invoke


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackTogether]:
    with LoopbackTogether() as running:
        monkeypatch.setenv("TOGETHER_BASE_URL", running.url)
        monkeypatch.setenv("TOGETHER_API_KEY", "a-key")
        for module in (together_api, upload):
            monkeypatch.setattr(module, "PAUSE", 0.01)
        monkeypatch.setattr(together, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(together, "LONGEST_PAUSE", 0.05)
        yield running
