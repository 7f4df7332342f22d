"""Self-play from a config to its evaluation: both seats trained, the same bits after a stop."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import counting
import pytest
from cases import slow_but
from in_folder import art
from loopback_judge import LoopbackJudge, says, scored
from short_run import results

import art_cli as api
from art_cli.config.sections.model import TinyConfig
from art_cli.errors import ConfigError, UsageError
from art_cli.rollout.match import SeatedAgents
from art_cli.rollout.policy_agent import PolicyAgents
from art_cli.runs.directory import RunDir
from art_cli.runs.trajectories import grouped

USE = f"{counting.__file__}:Counting"
CONFIG = f"""
project: test
name: game
env: {{use: "{USE}", opponents: {{train: policy, eval: start}}}}
model:
  base: tiny
  adapter: null
  tiny: {{hidden_size: 32, num_layers: 1, vocab_size: 300}}
sft: {{num_demonstrations: 100, epochs: 3, learning_rate: 1.25e-2, optimizer: muon}}
sampling: {{max_tokens: 4}}
train: {{steps: 4, scenarios_per_step: 3, group_size: 4, learning_rate: 4.0e-3}}
eval: {{every: 4, episodes: 12}}
checkpoint: {{every: 2, keep: 9}}
"""
Run = Callable[..., RunDir]


def trained(folder: Path, *overrides: str) -> RunDir:
    (folder / "config.yaml").write_text(CONFIG)
    art(folder, "run", "config.yaml", *overrides)
    return RunDir(folder / "runs/test/game")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return trained(tmp_path_factory.mktemp("whole"))


def seat(row: dict[str, Any]) -> str:
    return row["scenario"]["seat"]


def test_every_game_gives_a_group_of_each_seat_with_a_baseline_of_its_own(whole: RunDir) -> None:
    for step in range(1, 5):
        groups = grouped(whole.read_trajectories(step, "train"))
        assert len(groups) == 6
        for mine, theirs in zip(groups[::2], groups[1::2], strict=True):
            assert [len({seat(r) for r in g}) for g in (mine, theirs)] == [1, 1]
            assert seat(mine[0]) != seat(theirs[0]) and mine[0]["seed"] == theirs[0]["seed"]
            assert [a["reward"] + b["reward"] for a, b in zip(mine, theirs, strict=True)] == [1] * 4
            for group in (mine, theirs):
                mean = fmean(r["reward"] for r in group)
                assert [r["advantage"] for r in group] == pytest.approx(
                    [r["reward"] - mean for r in group]
                )


def test_the_seats_of_a_game_heard_each_other_and_are_trained_on_their_own_words(
    whole: RunDir,
) -> None:
    mine, theirs = grouped(whole.read_trajectories(1, "train"))[:2]
    for one, other in zip(mine, theirs, strict=True):
        said = {seat(row): [s["said"] for s in row["steps"]] for row in (one, other)}
        first, second = said["left"], said["right"]
        assert len(first) - len(second) in (0, 1)
        for row in (one, other):
            assert [sum(s["mask"]) for s in row["sequences"]] == [row["num_sampled"]] * bool(
                said[seat(row)]
            )
            before = first if seat(row) == "right" else second
            heard = [s["result"].split(" ", 1)[1] for s in row["steps"] if s["result"]]
            assert all(word in before for word in heard)


def test_held_out_games_are_played_from_every_seat_and_counted_by_it(whole: RunDir) -> None:
    rows = whole.read_trajectories(4, "val")
    assert [seat(r) for r in rows] == ["left", "right"] * 6
    assert [len(g) for g in grouped(rows)] == [1] * 12
    [last] = [r for r in whole.read_metrics() if r.get("val/reward") is not None][1:]
    for name in ("left", "right"):
        of_seat = fmean(r["reward"] for r in rows if seat(r) == name)
        assert last[f"val/reward_{name}"] == pytest.approx(of_seat)
        assert f"val/success_{name}" in last and f"val/sum_{name}" not in last


def test_a_run_that_was_stopped_ends_with_the_same_bits(whole: RunDir, tmp_path: Path) -> None:
    """But for the evaluation at which the first part of it ended."""
    run = trained(tmp_path, "train.steps=2")
    art(tmp_path, "run", "config.yaml", "--resume")
    expected, found = results(whole), results(run)
    steps = [n for n in expected if n.startswith(("checkpoints/4", "base", "trajectories/train"))]
    assert len(steps) > 10 and [n for n in steps if found[n] != expected[n]] == []
    learned, again = (
        [r for r in rows["metrics"] if "train/reward" in r] for rows in (expected, found)
    )
    assert len(learned) == 4 and again == learned


@pytest.mark.parametrize("opponent", slow_but(("start",), ("start", "script", "policy")))
def test_the_same_config_is_the_same_run_whoever_the_opponent_is(
    opponent: str, tmp_path: Path
) -> None:
    found = []
    for name in "ab":
        (tmp_path / name).mkdir()
        change = f"env.opponents.train={opponent}", "train.steps=2", "eval=null"
        found.append(results(trained(tmp_path / name, *change)))
    assert found[0] == found[1]


OWN = """
from art_cli import Sampler

class Own(Sampler):
    wrong = 0

    def take(self, cursor, num):
        return self.scenarios[cursor : cursor + num]

    def note(self, cursor, groups):
        played = [g.trajectories[0].scenario.id for g in groups]
        self.wrong += played != [s.id for s in self.take(cursor, len(groups))]
        return {"wrong": self.wrong, "groups": len(groups)}

    def state(self):
        return self.wrong

    def load(self, state):
        self.wrong = state
"""


def test_who_chooses_the_scenarios_hears_of_each_once_from_its_own_seat(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    run = trained(tmp_path, "train.curriculum=own.py:Own", "train.steps=2", "eval=null")
    rows = [r for r in run.read_metrics() if "train/reward" in r]
    assert [r["data/curriculum_groups"] for r in rows] == [3, 3]
    assert [r["data/curriculum_wrong"] for r in rows] == [0, 0]
    assert [r["data/groups"] for r in rows] == [6, 6]


def test_against_the_start_only_the_seat_itself_is_trained(tmp_path: Path) -> None:
    run = trained(tmp_path, "env.opponents.train=start", "train.steps=1", "eval=null")
    groups = grouped(run.read_trajectories(1, "train"))
    assert [len(g) for g in groups] == [4] * 3


def test_fewer_rows_than_seats_hold_up_no_game(tmp_path: Path) -> None:
    run = trained(tmp_path, "engine.max_num_seqs=2", "train.steps=1", "eval.episodes=4")
    rows = run.read_trajectories(1, "train")
    assert len(rows) == 24 and all(r["reward"] is not None for r in rows)


def test_eval_tells_the_seats_apart_and_evaluates_anew_against_another_opponent(
    whole: RunDir, tmp_path: Path
) -> None:
    shutil.copytree(whole.root.parents[2], tmp_path, dirs_exist_ok=True)
    ask = ("eval", "runs/test/game", "--checkpoint", "last", "--episodes", "12", "--json")
    found = json.loads(art(tmp_path, *ask))
    logged = [r for r in whole.read_metrics() if r.get("val/reward") is not None]
    for name, row in zip(("untrained", "last"), logged, strict=True):
        assert found[name]["metrics"]["reward"]["value"] == pytest.approx(row["val/reward"])
        by = found[name]["by"]["seat"]
        assert set(by) == {"left", "right"}
    other = json.loads(art(tmp_path, *ask, "env.opponents.eval=script"))
    assert other["last"]["episodes"] == 12
    assert other["last"]["metrics"]["seconds"] != found["last"]["metrics"]["seconds"]


def test_the_base_before_its_warm_up_is_no_candidate_against_the_start(
    whole: RunDir, tmp_path: Path
) -> None:
    shutil.copytree(whole.root.parents[2], tmp_path, dirs_exist_ok=True)
    with pytest.raises(
        UsageError, match=r"env\.opponents\.eval is start, the policy after its SFT"
    ):
        art(tmp_path, "eval", "runs/test/game", "--candidate", "base", "--episodes", "4")


def test_a_run_that_begins_with_a_checkpoint_meets_that_checkpoint(
    whole: RunDir, tmp_path: Path
) -> None:
    """All games of the frozen one and of the policy are then one and the same, greedily played."""
    words = CONFIG.splitlines()
    kept = [line for line in words if not line.startswith(("  tiny", "sft"))]
    (tmp_path / "config.yaml").write_text("\n".join(kept))
    change = f"model.base={whole.checkpoint(4)}", "train.steps=1", "eval.episodes=8"
    art(tmp_path, "run", "config.yaml", *change, "env.opponents.train=start", "sampling.top_k=1")
    run = RunDir(tmp_path / "runs/test/game")
    rows = run.read_trajectories(0, "val") + run.read_trajectories(1, "train")
    for name in ("left", "right"):
        told = {str([m["content"] for m in r["messages"]]) for r in rows if seat(r) == name}
        assert len(told) == 1
    scores = {seat(r): r["reward"] for r in rows}
    assert sorted(scores.values()) == [0, 1]


def test_a_model_that_is_asked_plays_the_other_seats(tmp_path: Path) -> None:
    with LoopbackJudge(then=says("two")) as server:
        who = {"model": server.model, "api_base": server.api_base}
        run = trained(
            tmp_path,
            f"env.opponents={json.dumps({'train': who, 'eval': who})}",
            "train.steps=1",
            "eval.episodes=4",
        )
        asked = [a.messages for a in server.asked]
    rows = run.read_trajectories(1, "train") + run.read_trajectories(0, "val")
    assert {s["result"].split(" ")[1] for r in rows for s in r["steps"] if s["result"]} == {"two"}
    assert {m[0]["content"] for m in asked[1:]} == {"You are left.", "You are right."}
    [first] = [r for r in run.read_metrics() if "train/reward" in r]
    assert first["llm/calls"] > 0


def test_a_candidate_that_is_asked_meets_the_policy_before_training(
    whole: RunDir, tmp_path: Path
) -> None:
    shutil.copytree(whole.root.parents[2], tmp_path, dirs_exist_ok=True)
    with LoopbackJudge(then=says("two")) as server:
        rival = f"{server.model},api_base={server.api_base}"
        found = json.loads(
            art(
                tmp_path,
                "eval",
                "runs/test/game",
                "--candidate",
                rival,
                "--episodes",
                "6",
                "--json",
            )
        )
    row = found[server.model]
    assert row["episodes"] == 6 and row["metrics"]["reward"]["value"] > 0


def test_a_judge_compares_the_games_of_one_seat(tmp_path: Path) -> None:
    """Who said less than its siblings is the better one, whichever the seat."""

    def brief(block: dict[str, Any]) -> float:
        return 1 / (1 + len(block["messages"]))

    with LoopbackJudge(then=scored(brief)) as server:
        judge = {"model": server.model, "api_base": server.api_base}
        run = trained(
            tmp_path, f"judge={json.dumps(judge)}", "train.steps=1", "eval=null", "reward.judge=1.0"
        )
    groups = grouped(run.read_trajectories(1, "train"))
    assert len(groups) == 6
    assert {seat(r) for g in groups[::2] for r in g} | {seat(r) for g in groups[1::2] for r in g}
    for group in groups:
        assert len({seat(r) for r in group}) == 1
        judged = {len(r["messages"]): r["reward"] for r in group}
        assert len(set(judged.values())) == len(judged)
        assert all(r["reward_parts"]["env"] in (0, 1) for r in group)


def test_the_opponent_from_the_start_stays_what_it_was(tmp_path: Path) -> None:
    """The policy is trained beside it; its own words for the same seed remain."""

    async def go() -> list[list[int]]:
        model = api.TrainableModel(
            name="game",
            project="test",
            base_model=api.ModelConfig(
                base="tiny",
                adapter=api.AdapterConfig(rank=4),
                tiny=TinyConfig(hidden_size=32, num_layers=1, vocab_size=300),
            ),
            env=counting.Counting,
            opponents=api.OpponentsConfig(eval="start"),
            sft=api.SFTConfig(
                num_demonstrations=100,
                epochs=3,
                learning_rate=5e-3,
                optimizer="muon",
                weights="all",
            ),
            sampling=api.SamplingConfig(max_tokens=4),
            train=api.TrainConfig(steps=1, learning_rate=0.5, group_size=6, max_kl=None),
        )
        async with api.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            frozen, found = model.parts.eval_agents, []
            assert isinstance(frozen, SeatedAgents) and isinstance(frozen.opponents, PolicyAgents)
            engines = frozen.opponents.engine, model.parts.engine
            for _ in range(2):
                for engine in engines:
                    session = engine.open(3)
                    found.append((await session.generate([5, 6, 7])).logprobs)
                    session.close()
                groups = await api.gather_trajectory_groups(
                    model, api.scenarios_of(model, "train")[:4], group_size=6
                )
                for place, t in enumerate(t for g in groups for t in g.trajectories):
                    t.reward = float(place)
                await model.train(groups)
            return found

    start, policy, start_after, policy_after = asyncio.run(go())
    assert start == policy == start_after != policy_after


# -- what is refused, with its place


def problem(tmp_path: Path, *overrides: str, config: str = CONFIG) -> str:
    (tmp_path / "config.yaml").write_text(config)
    with pytest.raises(ConfigError) as found:
        art(tmp_path, "validate", "config.yaml", *overrides)
    return str(found.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["env.use=order_desk"], "env.opponents: OrderDesk has one player; remove it, or write"),
        (["env.opponents.train=sctipt"], "expected one of 'policy', 'start', 'script'"),
        (["env.opponents.eval=policy"], "expected one of 'start', 'script' or a mapping"),
        (["env.opponents.train={model: reference}"], "env.opponents.train.model: is reference"),
        (["train.num_processes=2"], "train.num_processes is 2; write script"),
        (["env.opponents.trian=script"], "unknown key. Did you mean 'train'"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, overrides: list[str], said: str) -> None:
    assert said in problem(tmp_path, *overrides)


def test_a_game_that_is_none_is_pointed_at_in_its_file(tmp_path: Path) -> None:
    said = problem(tmp_path, config=CONFIG.replace(f'"{USE}"', "order_desk"))
    assert "config.yaml:4:" in said and "docs/games.md" in said


def test_a_game_in_an_interpreter_of_its_own_meets_its_script_alone(tmp_path: Path) -> None:
    said = problem(tmp_path, f"env.python={sys.executable}")
    assert "Counting runs in an interpreter of its own (env.python), where only its own" in said
    run = trained(
        tmp_path, f"env.python={sys.executable}", "env.opponents=null", "train.steps=1", "eval=null"
    )
    here = tmp_path / "here"
    here.mkdir()
    same = trained(here, "env.opponents=null", "train.steps=1", "eval=null")
    assert run.read_trajectories(1, "train") == same.read_trajectories(1, "train")


def test_a_stored_game_against_others_is_not_played_again(whole: RunDir) -> None:
    [row] = whole.read_trajectories(1, "train")[:1]
    with pytest.raises(UsageError, match=r"played against others \(env.opponents.train: policy\)"):
        art(whole.root.parents[2], "replay", "runs/test/game", "1", row["scenario_id"])
