"""The code that README and docs show runs; the configs there, and those that are shipped, load."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from counting import call
from docs.pages import PAGES, ROOT, blocks, code_of
from hosted import host, script
from integration.clients.packages import AGENTS, PACKAGES
from loopback_judge import LoopbackJudge, says
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.deploy import TARGETS
from art_cli.config.targets import read_settings
from art_cli.envs.registry import env_class
from art_cli.preflight.envs.check import check
from art_cli.preflight.user_code import too_few_scenarios
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.first_episode import check_env
from art_cli.rollout.rollout import play
from art_cli.training.curriculum.build import make_sampler, try_sampler
from art_cli.types import Scenario

LEAST = {"env": {"use": "order_desk"}, "model": {"base": "Qwen/Qwen3-8B"}, "train": {"steps": 1}}
CONFIGS = sorted([*(ROOT / "configs").glob("*.yaml"), *(ROOT / "configs/adapters").glob("*.yaml")])
RECIPES = ("docs/coding-agents.md", "docs/your-agent.md")
PROGRAMS = ROOT / "tests" / "integration" / "clients" / "programs"
DESKS = ("retail", "airline")  # which generate a thousand scenarios first


@pytest.fixture
def thermostat(tmp_path: Path) -> str:
    (tmp_path / "thermostat.py").write_text(code_of("docs/write-an-env.md", "python"))
    return f"{tmp_path}/thermostat.py:Thermostat"


def test_the_env_plays(thermostat: str) -> None:
    env = env_class(thermostat)
    episode = env(next(iter(env.scenarios(env.Config(), "train"))), env.Config())
    say = iter(['<tool_call>{"name": "turn", "arguments": {"by": 9}}</tool_call>', "done"])
    messages = play(episode, say.__next__)
    assert [m["content"] for m in messages if m["role"] == "tool"] == [
        "error: at most 5 degrees at once"
    ]


@pytest.mark.slow
def test_the_env_passes_every_check(thermostat: str) -> None:
    env = env_class(thermostat)
    assert {f.status for f in check(thermostat, env, env.Config())} == {"ok"}


@pytest.mark.slow
def test_the_games_fail_no_check_and_are_played(tmp_path: Path) -> None:
    games = [code for page, code in blocks("python") if page == "docs/games.md"]
    (tmp_path / "games.py").write_text("".join(games))
    for name, turn in {"Pile": "1", "HiddenPile": call("look") + call("take", number=1)}.items():
        use = f"{tmp_path}/games.py:{name}"
        env = env_class(use)
        assert "failed" not in {f.status for f in check(use, env, env.Config())}
        said = play(
            env(next(iter(env.scenarios(env.Config(), "val"))), env.Config()), lambda t=turn: t
        )
        assert any("are left." in m["content"] for m in said)


def test_the_agent_plays(tmp_path: Path, make_policy: Any) -> None:
    (tmp_path / "agent.py").write_text(_recipes("python")[0])
    runner = make_runner(AgentConfig(use="function", function=f"{tmp_path}/agent.py:play"))
    policy = make_policy()
    call = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
    trajectory = asyncio.run(host(policy, script(policy, call, "bye"), runner))
    assert trajectory.reward == pytest.approx(1.1) and len(trajectory.sequences) == 1


def test_the_sampler_chooses(tmp_path: Path) -> None:
    (code,) = (c for page, c in blocks("python") if page == "docs/lab.md" and "Sampler" in c)
    (tmp_path / "my.py").write_text(code)
    scenarios = [
        Scenario(id=f"train-{i}", split="train", seed=i, data={"level": i % 5}) for i in range(50)
    ]
    name = f"{tmp_path}/my.py:EasyFirst"
    try_sampler(name, scenarios, seed=0, num=8)
    first = make_sampler(name, scenarios, seed=0).take(0, 8)
    assert {s.data["level"] for s in first} == {0}


def _recipes(language: str) -> list[str]:
    return [code for page, code in blocks(language) if page in RECIPES]


def test_the_recipes_are_the_programs_of_the_tests() -> None:
    programs = {p.read_text() for p in PROGRAMS.iterdir()}
    shown = [*_recipes("python")[1:], *_recipes("js"), *_recipes("bash")]
    assert len(shown) > 18 and set(shown) <= programs


def test_the_recipes_install_what_the_tests_do() -> None:
    """Each follows the line that installs what it needs, in versions that the tests run."""
    npm = json.loads((PROGRAMS.parent / "package.json").read_text())["dependencies"]
    installed = {each for packages in (*PACKAGES.values(), *AGENTS.values()) for each in packages}
    installed |= {f"{name}@{version}" for name, version in npm.items()}
    beside = {"zod@4.6.7"}  # what a program of the tests alone imports
    named = set()
    for page in RECIPES:
        text = PAGES[page]
        for line in re.findall(r"^ {4}(?:pip|npm) install (.*)$", text, re.M):
            named |= {word for word in shlex.split(line) if word[0] != "-"}
        code = re.findall(r"(.*\n\n)```(?:python|js|bash)\n", text)
        first = "docs/your-agent.md" in page  # `play`, whose client is art's own
        without = [line for line in code[first:] if " install " not in line]
        assert without == (["**curl**, for all other languages.\n\n"] if first else [])
    assert named - {"configs/program-node"} == installed - beside


@pytest.mark.parametrize(("page", "code"), blocks("yaml"))
def test_a_config_loads(tmp_path: Path, page: str, code: str) -> None:
    """A part of one is laid over the least that an experiment needs."""
    if page == "docs/adapters.md":
        pytest.importorskip(yaml.safe_load(code)["env"]["use"], reason="an extra")
    least, shown = tmp_path / "least.yaml", tmp_path / "shown.yaml"
    least.write_text(yaml.safe_dump(LEAST))
    shown.write_text(code)
    load_experiment([least, shown], plugin_config=lambda use: env_class(use).Config)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=pytest.mark.slow if any(d in text for d in DESKS) else ())
        for p, text in ((p, p.read_text()) for p in CONFIGS)
    ],
)
def test_a_shipped_config_loads_and_its_env_plays(path: Path) -> None:
    if path.parent.name == "adapters":
        pytest.importorskip(yaml.safe_load(path.read_text())["env"]["use"], reason="an extra")
    loaded = load_experiment([path], plugin_config=lambda use: env_class(use).Config)
    if "data: hf:" in path.read_text():
        return  # a data set of the hub: there may be no network
    asyncio.run(check_env(env_class(loaded.experiment.env.use), loaded.env_settings))
    assert list(too_few_scenarios(loaded)) == []


@pytest.mark.slow
def test_every_evaluation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    short = "train.steps=2 train.warmup_steps=0 eval.episodes=4 sft.num_demonstrations=64"
    art("run", "configs/quickstart.yaml", *short.split())
    commands = re.findall(r"^    art (eval .*)", PAGES["docs/evaluate.md"], re.M)
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


def test_the_settings_of_each_target_are_those_it_takes() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|(.*)\|$", PAGES["docs/deploy.md"], re.M)
    assert [target for target, _ in rows] == list(TARGETS)
    for target, settings in rows:
        read_settings(target, {}, [s for s in re.findall(r"`([^`]+)`", settings) if "=" in s])
