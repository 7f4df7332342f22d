"""The environments of the clients, each made when it is missing, and a policy in their place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.clients.packages import AGENTS, BUILT, ENVIRONMENT, ON_PATH, PACKAGES
from integration.clients.stage import Task, tasks
from own_venv import node_modules_with, python_with

from art_cli.config.sections.model import TinyConfig
from art_cli.models import tiny
from art_cli.models.policy import Policy

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"

Command = Callable[..., list[str]]


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """How to start one of the programs, by its file's name."""
    folder = tmp_path_factory.mktemp("programs")
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)

    def start(name: str, *words: str) -> list[str]:
        path = str(folder / name)
        if name.endswith(".mjs"):
            return [_node(folder), path, *words]
        if name.endswith(".sh"):
            return [*_path_of(name.removesuffix(".sh")), *_shell(path, *words)]
        venv = ENVIRONMENT.get(name.partition("_")[0], "clients")
        return [str(python_with(venv, *PACKAGES[venv])), path, *words]

    return start


def _node(folder: Path) -> str:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("there is no node or no npm on this machine")
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(node_modules_with("clients-node", (HERE / "package.json").read_text()))
    return node


def _path_of(agent: str) -> list[str]:
    """How to start a program that finds an agent's command; nothing, where it needs none."""
    if agent in ON_PATH:
        return ["env", f"PATH={_bin_of(ON_PATH[agent])}:{os.environ['PATH']}"]
    return []


def _bin_of(venv: str) -> Path:
    if venv in PACKAGES:
        return python_with(venv, *PACKAGES[venv]).parent
    if shutil.which("npm") is None:
        pytest.skip("there is no npm on this machine")
    wanted = dict(each.rsplit("@", 1) for each in AGENTS[venv])
    built = [name for name in wanted if name in BUILT]
    package = json.dumps({"private": True, "dependencies": wanted})
    try:
        return node_modules_with(venv, package, *built) / ".bin"
    except subprocess.CalledProcessError as e:
        pytest.skip(f"npm cannot install {', '.join(wanted)} here: {e}")


def _shell(path: str, *words: str) -> list[str]:
    missing = [tool for tool in ("bash", "curl", "jq") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"there is no {' and no '.join(missing)} on this machine")
    return ["bash", path, *words]


@pytest.fixture(scope="session")
def desk() -> list[Task]:
    """Scenarios of order_desk: a request that is granted, and one that is refused."""
    return tasks("order_desk", 2)


@pytest.fixture(scope="session")
def retail() -> Task:
    """A ticket of the retail desk: three reads, a write, and words."""
    return tasks("retail", 1, level=0, size="small", kinds=("one",))[0]


@pytest.fixture(scope="session")
def talk() -> Task:
    """A customer of the retail desk, who answers."""
    return tasks("retail", 1, level=1, size="small", kinds=("one",))[0]


@pytest.fixture(scope="session")
def policy(desk: list[Task]) -> Policy:
    """A model whose tokenizer and template all play with; its weights are asked in few tests."""
    texts = [text for task in desk for text in task.gold()]
    model, tokenizer = tiny.make(TinyConfig(hidden_size=32, vocab_size=512), texts, 0)
    return Policy(model, tokenizer)
