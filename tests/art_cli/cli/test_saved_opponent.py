"""A checkpoint of an earlier run that plays the other seats of a game."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import counting
import pytest
from in_folder import art
from short_run import results

from art_cli.backends.frozen import FrozenPlayers
from art_cli.chat.render import Renderer
from art_cli.config.load import load_experiment
from art_cli.config.sections.env import SavedPolicyConfig
from art_cli.engines.embedded.engine import TransformersEngine
from art_cli.errors import CheckpointError, ConfigError, UsageError
from art_cli.models.loading import load_policy
from art_cli.rollout.agent import AgentFactory
from art_cli.rollout.policy_agent import PolicyAgents
from art_cli.runs.directory import RunDir
from art_cli.runs.opponents import SavedPolicy

CONFIG = f"""
project: test
name: first
env: {{use: "{counting.__file__}:Counting"}}
model:
  base: tiny
  adapter: {{rank: 4}}
  tiny: {{hidden_size: 32, num_layers: 1, vocab_size: 300}}
sft:
  num_demonstrations: 300
  epochs: 6
  learning_rate: 5.0e-3
  optimizer: muon
  weights: all
sampling: {{max_tokens: 4}}
train: {{steps: 2, scenarios_per_step: 3, group_size: 4, learning_rate: 4.0e-2}}
eval: {{every: 2, episodes: 12}}
checkpoint: {{every: 1, keep: 9}}
"""
FIRST = "{checkpoint: runs/test/first}"


def against(folder: Path, name: str, *changes: str, who: str = FIRST) -> RunDir:
    """Train a run whose games, both kinds, are played against a checkpoint."""
    both = f"env.opponents={{train: {who}, eval: {who}}}"
    art(folder, "run", "config.yaml", f"name={name}", both, *changes)
    return RunDir(folder / "runs/test" / name)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run `first`, an adapter on a base of its own."""
    folder = tmp_path_factory.mktemp("first")
    (folder / "config.yaml").write_text(CONFIG)
    art(folder, "run", "config.yaml")
    return folder


@pytest.fixture(scope="module")
def second(trained: Path) -> RunDir:
    """The run `second` beside it, trained against the last checkpoint of `first`."""
    return against(trained, "second", who="{checkpoint: runs/test/first, step: last}")


@pytest.fixture
def folder(trained: Path, second: RunDir, tmp_path: Path) -> Path:
    """A copy of both, to break."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def told(run: RunDir, step: int, split: Any) -> list[str]:
    return [str(row["messages"]) for row in run.read_trajectories(step, split)]


def test_it_is_noted_which_step_plays_and_only_the_seat_itself_is_trained(second: RunDir) -> None:
    [(words, noted)] = json.loads((second.root / "opponents.json").read_text()).items()
    assert words == "runs/test/first last" and noted["step"] == 2
    assert len(second.read_trajectories(1, "train")) == 12
    assert len(second.read_trajectories(0, "val")) == 12


def spoken(player: AgentFactory) -> list[tuple[list[int], list[float]]]:
    """What a player says to some seeds, and how likely it took that for."""
    assert isinstance(player, PolicyAgents)

    async def go() -> list[tuple[list[int], list[float]]]:
        found = []
        for seed in range(4):
            session = player.engine.open(seed)
            done = await session.generate([5, 6, 7])
            session.close()
            found.append((done.token_ids, done.logprobs))
        return found

    return asyncio.run(go())


@pytest.mark.parametrize("shared", [True, False])
def test_it_plays_with_its_own_weights_be_its_base_the_policys_or_one_of_its_own(
    shared: bool, trained: Path
) -> None:
    """The same words as those of the policy itself after `go_to`, and others than before."""
    run = RunDir(trained / "runs/test/first")
    cfg = load_experiment([run.config]).experiment
    who = SavedPolicyConfig(checkpoint=str(run.root), step=2)
    saved = SavedPolicy.open("env.opponents.train", who)
    assert cfg.model.adapter
    policy = load_policy(replace(cfg.model, base=str(run.base)), (), 0)
    policy.add_adapter(cfg.model.adapter, 0)
    renderer = Renderer(policy.tokenizer, [], policy.eos_token_ids)
    if not shared:
        cfg = replace(cfg, model=replace(cfg.model, dtype="float32"))  # which a CPU has anyway
    frozen = FrozenPlayers(cfg, policy, renderer, {who: saved}, contextlib.AsyncExitStack())
    player, start = frozen.player(who), frozen.player("start")
    assert isinstance(player, PolicyAgents) and frozen.player(who) is player
    assert (player.renderer.stop_ids, player.max_model_len) == (renderer.stop_ids, 4096)
    others = {id(p) for p in player.engine._policy.base.parameters()}  # type: ignore[attr-defined]
    assert shared == any(id(p) in others for p in policy.base.parameters())
    before, found = spoken(start), spoken(player)
    policy.load(run.checkpoint(2))
    engine = TransformersEngine(policy, cfg.engine, cfg.sampling, renderer.stop_ids)
    assert found == spoken(PolicyAgents(engine, renderer, 4096)) != before


def test_a_checkpoint_of_all_weights_plays_as_the_start_of_a_run_that_begins_with_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    art(tmp_path, "run", "config.yaml", "model.adapter=null")
    base = "{base: runs/test/first/checkpoints/2, adapter: null}"
    begin = "model=null", f"model={base}", "sft=null", "train.steps=1"
    runs = [
        against(tmp_path, "a", *begin, who="start"),
        against(tmp_path, "b", *begin, who="{checkpoint: runs/test/first, step: 2}"),
    ]
    for step, split in ((0, "val"), (1, "train"), (1, "val")):
        start, saved = (told(run, step, split) for run in runs)
        assert start == saved


def test_a_run_repeats_bit_for_bit_stopped_or_not(second: RunDir, folder: Path) -> None:
    shutil.rmtree(folder / "runs/test/second")
    who = "{checkpoint: runs/test/first, step: last}"
    against(folder, "second", "train.steps=1", who=who)
    found = results(against(folder, "second", "--resume", who=who))
    expected = results(second)
    parts = "checkpoints/2", "base", "trajectories/train"
    path_in = "README.md", "checksums.sha256"  # the base's path is in it
    same = [n for n in expected if n.startswith(parts) and not n.endswith(path_in)]
    assert len(same) > 8 and [n for n in same if found[n] != expected[n]] == []


def test_a_run_goes_on_against_what_it_began_with_or_not_at_all(folder: Path) -> None:
    """`last` is then another step: the run still plays against the one that it noted."""
    art(folder, "run", "config.yaml", "train.steps=3", "--resume")
    who = "{checkpoint: runs/test/first, step: last}"
    run = against(folder, "second", "train.steps=3", "--resume", who=who)
    assert [n["step"] for n in json.loads((run.root / "opponents.json").read_text()).values()] == [
        2
    ]
    first = RunDir(folder / "runs/test/first")
    shutil.rmtree(first.checkpoint(2))
    shutil.copytree(first.checkpoint(1), first.checkpoint(2))
    with pytest.raises(ConfigError, match="is not what the run was started against"):
        against(folder, "second", "train.steps=4", "--resume", who=who)
    shutil.rmtree(first.checkpoint(2))
    with pytest.raises(ConfigError, match="has no checkpoint 2 any more"):
        against(folder, "second", "train.steps=4", "--resume", who=who)


def test_a_run_does_not_go_on_against_another_checkpoint(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"env\.opponents\.eval\.step: 'last' -> 1"):
        against(
            folder,
            "second",
            "--resume",
            "train.steps=3",
            who="{checkpoint: runs/test/first, step: 1}",
        )


def test_eval_plays_against_a_checkpoint_by_override_and_anew_against_another(
    folder: Path,
) -> None:
    ask = ("eval", "runs/test/second", "--checkpoint", "last", "--episodes", "12", "--json")
    found = [
        json.loads(
            art(folder, *ask, f"env.opponents.eval={{checkpoint: runs/test/first, step: {n}}}")
        )
        for n in (1, 2, 2)
    ]
    values = [each["last"]["metrics"]["reward"]["value"] for each in found]
    assert found[1] == found[2] and found[0] != found[1]  # seconds, too
    metrics = RunDir(folder / "runs/test/second").read_metrics()
    final = [row["val/reward"] for row in metrics if "val/reward" in row][-1]
    assert values[1] == pytest.approx(final)
    shutil.rmtree(folder / "runs/test/first")
    art(folder, *ask, "env.opponents.eval=script")  # nobody then looks for it


@pytest.mark.parametrize(
    ("who", "said"),
    [
        (
            "{checkpoint: runs/test/frist}",
            r"config|override.*env\.opponents\.train: .*holds no run",
        ),
        ("{checkpoint: runs/test/first, step: 7}", "has no checkpoint '7'; expected best, last or"),
        ("{checkpoint: runs/test/first, setp: 7}", "setp: unknown key. Did you mean 'step'"),
        ("{checkpoint: runs/test/first, step: -1}", "step: expected one of .best., .last., got -1"),
        ("{checkpiont: runs/test/first}", "checkpiont: unknown key. Did you mean 'checkpoint'"),
        ("{step: best}", "checkpoint: missing"),
        ("{checkpoint: runs/test/half}", r"has not ended \(interrupted\), so its best checkpoint"),
    ],
)
def test_what_is_no_checkpoint_is_refused_before_anything_is_made(
    who: str, said: str, folder: Path
) -> None:
    half = RunDir(folder / "runs/test/half")
    shutil.copytree(folder / "runs/test/first", half.root)
    half.config.write_text(half.config.read_text().replace("name: first", "name: half"))
    half.write_status("interrupted", 1, 2)
    with pytest.raises(ConfigError, match=said):
        against(folder, "third", who=who)
    assert not (folder / "runs/test/third").exists()
    with pytest.raises(ConfigError, match=said):
        art(folder, "validate", "config.yaml", f"env.opponents={{train: {who}}}")


@pytest.mark.parametrize("part", ["base", "checkpoints/2"])
def test_damaged_weights_are_told_with_their_key(part: str, folder: Path) -> None:
    [weights] = (folder / "runs/test/first" / part).glob("*.safetensors")
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(
        CheckpointError, match=rf"^env\.opponents\.train: .*{part} is damaged: .*SHA"
    ):
        against(folder, "third", who="{checkpoint: runs/test/first, step: 2}")
    assert not (folder / "runs/test/third").exists()


def test_it_needs_the_trainers_own_process(folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"holds start or a checkpoint, which play in one process"
    ):
        against(folder, "third", "train.num_processes=2")


def test_a_smoke_run_meets_the_start_instead(folder: Path) -> None:
    who = "env.opponents={train: {checkpoint: runs/test/first}}"
    art(folder, "run", "config.yaml", "name=third", "--smoke", who)
    told = RunDir(folder / "runs/test/third-smoke").config.read_text()
    assert "train: start" in told
