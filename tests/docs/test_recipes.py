"""Each recipe of CONTRIBUTING is a whole file that works by its name in a config."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from docs.pages import blocks, commands
from engine_contract import PROMPTS, assert_exact, play
from hosted import host, script
from typer.testing import CliRunner

from art_cli.cli.main import app
from art_cli.config.load import load_experiment
from art_cli.config.plugins import PATTERN
from art_cli.config.sections.agent import AgentConfig
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.sampling import SamplingConfig
from art_cli.engines.user_engine import UserEngine
from art_cli.envs.registry import env_class
from art_cli.preflight.envs.check import check
from art_cli.rollout.agents.build import make_runner
from art_cli.rollout.rollout import play_episode
from art_cli.runs.directory import RunDir
from art_cli.runs.trackers.build import make_trackers
from art_cli.training.algorithm.advantage import set_advantages, try_advantage
from art_cli.training.algorithm.loss import loss_named
from art_cli.training.curriculum.build import make_sampler, try_sampler
from art_cli.types import Scenario, Trajectory, TrajectoryGroup

PAGE = "CONTRIBUTING.md"
CONFIG = """
project: test
name: short
env: {use: colours.py:Opposites}
model: {base: tiny, adapter: null, tiny: {hidden_size: 32, num_layers: 1, vocab_size: 300}}
sft: {num_demonstrations: 200, epochs: 4, learning_rate: 5.0e-3, optimizer: muon}
sampling: {max_tokens: 6}
train:
  steps: 2
  scenarios_per_step: 4
  group_size: 4
  learning_rate: 4.0e-3
  loss: reinforce.py:reinforce
  advantage: best.py:best_only
  curriculum: unsolved.py:Unsolved
agent: {use: ask_once.py:AskOnce}
engine: {use: naive.py:NaiveEngine}
judge: {use: shortest.py:ShortestJudge}
reward: {env: 1.0, judge: 0.5}
eval: null
checkpoint: {every: 1}
track: {custom: {file: {use: reward_file.py:RewardFile, args: {metric: loss/policy}}}}
deploy: {use: copy_to.py:CopyTarget, args: {folder: copied}}
"""


@pytest.fixture(autouse=True)
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recipe as the file that its first line names, in the present folder."""
    monkeypatch.chdir(tmp_path)
    for code in [code for page, code in blocks("python") if page == PAGE]:
        file = re.match(r"# (\w+\.py)\n", code)
        assert file, f"a block of {PAGE} does not begin with the name of its file: {code:.60}"
        Path(file[1]).write_text(code)


def test_every_command_of_a_recipe_names_what_a_recipe_defines() -> None:
    named = [word for page, line in commands() if page == PAGE for word in line.split()]
    used = [w.rpartition("=")[2] for w in named if re.match(PATTERN, w.rpartition("=")[2])]
    files = {path.name for path in Path.cwd().glob("*.py")}
    assert {name.partition(":")[0] for name in used} == files
    for name in used:
        file, _, defined = name.partition(":")
        assert re.search(rf"^(class|def) {defined}\b", Path(file).read_text(), re.M)


def test_the_loss_learns_from_the_advantage() -> None:
    assert loss_named("reinforce.py:reinforce").clip_low >= 0


def group(*rewards: float, scenario: int = 0) -> TrajectoryGroup:
    about = Scenario(id=f"train-{scenario}", split="train", seed=scenario)
    return TrajectoryGroup([Trajectory(scenario=about, reward=r) for r in rewards])


def test_the_advantage_credits_the_best_alone() -> None:
    name = "best.py:best_only"
    assert try_advantage(name) is None
    groups = [group(1.0, 0.0, 0.5), group(0.5, 0.5), group()]
    set_advantages(groups, name)
    assert [t.advantage for g in groups for t in g.trajectories] == [0.5, 0.0, 0.0, 0.0, 0.0]


def test_the_sampler_leaves_out_what_is_solved() -> None:
    scenarios = [Scenario(id=f"train-{i}", split="train", seed=i) for i in range(6)]
    try_sampler("unsolved.py:Unsolved", scenarios, seed=0, num=3)
    sampler = make_sampler("unsolved.py:Unsolved", scenarios, seed=0)
    assert sampler.note(0, [group(1.0, 1.0, scenario=i) for i in range(3)]) == {"solved": 3}
    assert {s.seed for s in sampler.take(3, 3)} == {3, 4, 5}
    assert len(sampler.take(6, 4)) == 4


def test_the_agent_makes_the_calls_of_one_turn(make_policy: Any) -> None:
    policy = make_policy()
    call = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'

    async def episode() -> Trajectory:
        runner = make_runner(AgentConfig(use="ask_once.py:AskOnce"))
        assert runner
        try:
            return await host(policy, script(policy, call), runner)
        finally:
            await runner.close()

    trajectory = asyncio.run(episode())
    assert trajectory.reward == 1.0 and [s.tool for s in trajectory.steps] == ["sell"]


def test_the_engine_samples_as_transformers_does(make_policy: Any) -> None:
    policy, stops = make_policy(rank=4), frozenset(range(30))
    cfg, sampling = EngineConfig(use="naive.py:NaiveEngine"), SamplingConfig(max_tokens=5)
    engine = UserEngine(policy, cfg, sampling, stops)
    prompts = PROMPTS["short"][:4]
    assert_exact(policy, play(engine, prompts, turns=2))
    for p in policy.trainable:
        p.data += 0.2 * torch.randn_like(p)
    asyncio.run(engine.sync(1))
    assert engine.policy_version == 1
    assert_exact(policy, play(engine, prompts, turns=2))


def test_the_tracker_writes_each_row_once(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    cfg = load_experiment([tmp_path / "config.yaml"]).experiment
    run = RunDir(tmp_path / "run")
    run.root.mkdir()
    run.metrics.write_text('{"training_step": 1, "loss/policy": 0.5}\n')
    said: list[str] = []
    for _ in range(2):  # as a run that is resumed
        for tracker in make_trackers(cfg, run, {}, said.append):
            tracker.finish("done")
    assert (run.root / "rewards.txt").read_text() == "1 0.5\n" and not said


def test_the_adapter_scores_what_the_library_asks() -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    env = env_class("sums.py:Sums")
    scenario = next(iter(env.scenarios(env.Config(), "val")))
    gold = env(scenario, env.Config()).gold()
    assert gold and play_episode(env(scenario, env.Config()), gold.__next__).reward == 1
    assert play_episode(env(scenario, env.Config()), lambda: "no").reward != 1


@pytest.mark.slow
def test_the_adapter_is_a_task_to_train_on() -> None:
    pytest.importorskip("reasoning_gym", reason="an extra")
    env = env_class("sums.py:Sums")
    found = check("sums.py:Sums", env, env.Config())
    assert {f.status for f in found} <= {"ok", "warning"}, found


def art(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.slow
def test_a_run_with_every_recipe_and_its_deployment(tmp_path: Path) -> None:
    (tmp_path / "colours.py").symlink_to(Path(__file__).parents[1] / "colours.py")
    Path("config.yaml").write_text(CONFIG)
    art("validate", "config.yaml")
    art("run", "config.yaml")
    run = RunDir(Path("runs/test/short"))
    rows = run.read_metrics()
    assert [row["training_step"] for row in rows] == [1, 2]
    assert all("data/curriculum_solved" in row and "judge/score" in str(row) for row in rows)
    assert len((run.root / "rewards.txt").read_text().splitlines()) == 2
    assert "is ready" in art("deploy", str(run.root))
    assert list(Path("copied").glob("*.safetensors")) and "copy_to.py" in art("deployments")
    assert "has ended" in art("undeploy", str(run.root), "--yes")
    assert not Path("copied").exists()
