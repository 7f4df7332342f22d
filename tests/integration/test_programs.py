"""Agents in other processes and languages, trained through the gateway as their users would.

OpenAI's npm package, its Python package and the official MCP client are not installed beside art.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from integration.clients.conftest import PACKAGES
from own_venv import python_with
from transformers import AutoTokenizer

from art_cli.chat.render import Conversation, Renderer
from art_cli.envs.tools import schemas_of
from art_cli.runs.directory import RunDir
from art_cli.types import Completion
from art_envs.order_desk import OrderDesk

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "program-node.yaml"
AGENTS = Path(__file__).with_name("agents")
SMALL = [
    "train.scenarios_per_step=4",
    "train.group_size=4",
    "train.warmup_steps=0",
    "agent.timeout=900",  # on a busy machine
    "eval.episodes=8",
]


def art(*arguments: str) -> None:
    """`art` in a process of its own."""
    code = "from art_cli.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model after its SFT, which all of them train on."""
    folder = tmp_path_factory.mktemp("base")
    config = str(ROOT / "configs" / "quickstart.yaml")
    art("run", config, "train.steps=0", "eval=null", f"--runs-dir={folder}")
    return folder / "default" / "quickstart" / "base"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The shipped program, with what `npm install` gives it."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm on this machine")
    folder = tmp_path_factory.mktemp("node")
    shutil.copytree(ROOT / "configs" / "program-node", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "install"], cwd=folder, check=True, timeout=900, capture_output=True)
    return ["node", str(folder / "agent.js")]


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that knows OpenAI's and MCP's packages, and nothing of ours."""
    return str(python_with("clients", *PACKAGES["clients"]))


def train(folder: Path, base: Path, command: list[str], steps: int) -> RunDir:
    """`art run` of the shipped config, smaller, with this program."""
    own = [f"agent.command={json.dumps(command)}", f"model.base={base}", "sft=null"]
    ends = [f"train.steps={steps}", f"checkpoint.every={steps}", f"--runs-dir={folder}"]
    art("run", str(CONFIG), *SMALL, *own, *ends)
    return RunDir(folder / "default" / "program-node")


def check(run: RunDir, steps: int) -> None:
    """All that was captured is what was sampled, and it was trained on."""
    rows = [row for row in run.read_metrics() if "data/groups" in row]
    assert len(rows) == steps
    trained = [row for row in rows if "loss/policy" in row]  # some group had a gradient
    assert len(trained) > 0.8 * steps
    assert all(row["data/trajectories_failed"] == 0 for row in rows)
    assert max(row["loss/ratio_max"] for row in trained) < 1.01  # on-policy: 1, but for rounding
    tokenizer = AutoTokenizer.from_pretrained(run.checkpoint(steps))
    renderer = Renderer(tokenizer, schemas_of(OrderDesk))
    turns = 0
    for step in range(1, steps + 1):
        for row in run.read_trajectories(step, "train"):
            assert not row["metrics"]["crashed"], row
            assert len(row["sequences"]) == 1
            turns += row["num_turns"]
            assert rendered_again(renderer, row) == row["sequences"][0]["ids"]
    assert turns > 20 * steps  # 16 episodes a step, most of them with a tool call


def rendered_again(renderer: Renderer, row: dict[str, Any]) -> list[int]:
    """The token ids of the messages, with those that were sampled put where the turns are."""
    [sequence] = row["sequences"]
    runs, now = [], []
    for i, m in zip(sequence["ids"], sequence["mask"], strict=True):
        if m:
            now.append(i)
        elif now:
            runs, now = [*runs, now], []
    sampled = iter([*runs, now])
    talk, new = Conversation(renderer), []
    for message in row["messages"]:
        if message["role"] != "assistant":
            new.append(message)
            continue
        talk.add_messages(new)
        ids = next(sampled)
        completion = Completion(
            token_ids=ids, logprobs=[0.0] * len(ids), finish_reason="stop", policy_version=0
        )
        assert talk.add_completion(completion) == message["content"]
        new = []
    return talk.ids


def test_an_agent_in_javascript_is_trained(tmp_path: Path, base: Path, node: list[str]) -> None:
    check(train(tmp_path, base, node, 5), 5)


def test_an_agent_with_openais_python_package_is_trained(
    tmp_path: Path, base: Path, python: str
) -> None:
    check(train(tmp_path, base, [python, str(AGENTS / "with_openai.py")], 2), 2)


def test_an_agent_with_the_official_mcp_client_is_trained(
    tmp_path: Path, base: Path, python: str
) -> None:
    check(train(tmp_path, base, [python, str(AGENTS / "with_mcp.py")], 2), 2)
