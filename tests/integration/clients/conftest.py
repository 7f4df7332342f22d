"""The environments of the clients, each made when it is missing, and a policy in their place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from integration.clients.stage import Task, tasks
from own_venv import node_modules_with, python_with

from art_cli.config.schema import TinyConfig
from art_cli.models import tiny
from art_cli.models.policy import Policy

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"

# What cannot share an environment: the MCP adapters of LangChain, smolagents and AutoGen need the
# first major version of MCP's package, AG2's the second; CrewAI holds back what others need newer.
PACKAGES = {
    "clients": [
        "openai==3.57.0",
        "openai-agents==0.24.0",
        "pydantic-ai-slim[openai,anthropic,mcp]==2.68.0",
        "ag2[openai]==1.2.1",
        "litellm==1.110.2",
        "anthropic==2.13.0",
        "mcp==2.3.0",
    ],
    "clients-mcp1": [
        "langchain==1.5.2",
        "langgraph==1.2.24",
        "langchain-openai==1.7.4",
        "langchain-anthropic==1.7.10",
        "langchain-mcp-adapters==0.3.2",
        "smolagents[openai,mcp]==1.26.0",
        "autogen-agentchat==0.7.5",
        "autogen-ext[openai,mcp]==0.7.5",
    ],
    "clients-crewai": ["crewai==1.15.30"],
}
ENVIRONMENT = {
    "langchain": "clients-mcp1",
    "langgraph": "clients-mcp1",
    "smolagents": "clients-mcp1",
    "autogen": "clients-mcp1",
    "crewai": "clients-crewai",
}  # by the first word of a program's name; the others need "clients"

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
            return _shell(path, *words)
        venv = ENVIRONMENT.get(name.partition("_")[0], "clients")
        return [str(python_with(venv, *PACKAGES[venv])), path, *words]

    return start


def _node(folder: Path) -> str:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("there is no node or no npm on this machine")
    modules = folder / "node_modules"
    if not modules.exists():
        modules.symlink_to(node_modules_with("clients-node", HERE / "package.json"))
    return node


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
