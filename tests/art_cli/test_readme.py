"""What the README shows is true: its code runs, its config and the shipped ones are right."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from hosted import host, script
from loopback_judge import LoopbackJudge, says
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.config.schema import AgentConfig
from art_cli.config.targets import TARGETS, read_settings
from art_cli.envs.registry import env_class
from art_cli.preflight.envs.check import check
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import play

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
PYTHON = [code for language, code in BLOCKS if language == "python"]


def test_the_env_of_the_readme_works(tmp_path: Path) -> None:
    (tmp_path / "thermostat.py").write_text(PYTHON[0])
    env = env_class(f"{tmp_path}/thermostat.py:Thermostat")
    asyncio.run(check_env(env, env.Config()))
    episode = env(next(iter(env.scenarios(env.Config(), "train"))), env.Config())
    say = iter(['<tool_call>{"name": "turn", "arguments": {"by": 9}}</tool_call>', "done"])
    messages = play(episode, say.__next__)
    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "error: at most 5 degrees at once"
    ]


def test_the_agent_of_the_readme_plays(tmp_path: Path, make_policy: Any) -> None:
    (tmp_path / "agent.py").write_text(next(code for code in PYTHON if "def play(client" in code))
    runner = make_runner(AgentConfig(type="function", use=f"{tmp_path}/agent.py:play"))
    policy = make_policy()
    call = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
    trajectory = asyncio.run(host(policy, script(policy, call, "bye"), runner))
    assert trajectory.reward == pytest.approx(1.1) and len(trajectory.sequences) == 1


def test_every_evaluation_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    short = (
        "train.steps=2 train.schedule_warmup_steps=0 eval.episodes=4 warmup.num_demonstrations=64"
    )
    art("run", "configs/quickstart.yaml", *short.split())
    section = README.partition("## Evaluate")[2].partition("\n## ")[0]
    commands = re.findall(r"^    art (eval .*)", section, re.M)
    assert len(commands) == 4
    with LoopbackJudge(then=says("refuse")) as server:
        own = f"openai/gpt-4.1,api_base={server.api_base},prices.input=0,prices.output=0"
        for command in commands:
            line = command.replace("http://127.0.0.1:8000/v1", server.api_base)
            printed = art(*shlex.split(line.replace("openai/gpt-4.1", own)), "--episodes", "4")
            assert "pass^1" in printed and "4 held-out scenarios" in printed
    assert "</html>" in (tmp_path / "report.html").read_text()


def art(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_the_config_of_the_readme_is_right_with_and_without_its_judge(tmp_path: Path) -> None:
    judge, config = (code for language, code in BLOCKS if language == "yaml")
    files = [tmp_path / "config.yaml", tmp_path / "judge.yaml"]
    for file, code in zip(files, (config, judge), strict=True):
        file.write_text(code)
    for given in (files[:1], files):
        loaded = load_experiment(given, plugin_config=lambda use: env_class(use).Config)
        assert loaded.experiment.model.adapter is not None
    assert loaded.experiment.judge is not None


def test_the_env_of_the_readme_passes_every_check(tmp_path: Path) -> None:
    (tmp_path / "thermostat.py").write_text(PYTHON[0])
    use = f"{tmp_path}/thermostat.py:Thermostat"
    found = list(check(use, env_class(use), env_class(use).Config()))
    assert {f.status for f in found} == {"ok"}


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_configs_are_right(path: Path) -> None:
    loaded = load_experiment([path], plugin_config=lambda use: env_class(use).Config)
    asyncio.run(check_env(env_class(loaded.experiment.env.use), loaded.env_settings))


def test_the_tree_of_the_readme_names_every_module() -> None:
    tree = README.partition("## What is where")[2]
    shown = set(re.findall(r"[\w/]+", tree))
    modules = {p.stem for p in (ROOT / "art_cli").glob("*.py")} - {"__init__"}
    missing = {m for m in modules if m not in shown}
    assert not missing, json.dumps(sorted(missing))


def test_the_settings_of_each_target_are_those_it_takes() -> None:
    section = README.partition("## Deploy")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", section, re.M)
    assert [target for target, _ in rows] == list(TARGETS)
    for target, settings in rows:
        read_settings(target, {}, [s for s in re.findall(r"`([^`]+)`", settings) if "=" in s])
