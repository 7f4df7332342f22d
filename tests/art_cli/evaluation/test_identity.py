"""What makes a candidate another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from art_cli.config.sections.agent import AgentConfig
from art_cli.envs.digest import code_digest
from art_cli.envs.registry import env_class
from art_cli.errors import CheckpointError
from art_cli.evaluation.identity import agent_digest, folder_digest


def test_an_env_is_all_files_of_its_own_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "desk_of_ann"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "env.py").write_text(
        "import art_cli as art\nfrom .rules import RULE\nclass Desk(art.Env):\n    pass\n"
    )
    (package / "rules.py").write_text("from desk_of_ann import money\nRULE = 1\n")
    (package / "money.py").write_text("CENTS = 100\n")
    (package / "other.py").write_text("")
    env = env_class("desk_of_ann.env:Desk")
    digests = [code_digest(env)]
    for name in ("money", "other"):
        (package / f"{name}.py").write_text("CENTS = 10\n")
        digests.append(code_digest(env))
    assert digests[0] != digests[1] == digests[2]  # nobody imports the other


def test_a_program_is_the_files_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert agent_digest(AgentConfig()) is None
    (tmp_path / "agent.js").write_text("play()")
    agent = AgentConfig(use="program", command=["node", "agent.js"])
    first = agent_digest(agent)
    (tmp_path / "out.txt").write_text("what it printed")
    assert first and agent_digest(agent) == first
    (tmp_path / "helper.js").write_text("more()")
    assert agent_digest(agent) not in (None, first)


@pytest.mark.parametrize(
    "agent",
    [
        AgentConfig(use="function", function="mine.py:play"),
        AgentConfig(use="mine.py:Mine"),
        AgentConfig(use="mine:Mine"),
    ],
)
def test_a_function_and_a_class_are_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: AgentConfig
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text("class Mine: ...\n")
    first = agent_digest(agent)
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    assert first and agent_digest(agent) not in (None, first)


def test_weights_are_their_bytes_and_not_their_dates(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(content)
    a, b, c = (folder_digest(tmp_path / name) for name in "abc")
    assert a == b != c


def test_a_pipe_in_place_of_weights_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="a pipe or a device"):
        folder_digest(tmp_path)
