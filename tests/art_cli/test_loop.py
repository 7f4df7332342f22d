"""The loop: what is trained on when, what is kept, and what is said."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from colours import Opposites, colours_model

import art_cli as art
from art_cli.config.sections.checkpoint import CheckpointConfig
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.eval import EvalConfig
from art_cli.errors import UsageError
from art_cli.loop import Outcome, Stop, run_loop
from art_cli.runs.checkpoint import best_checkpoint, find_checkpoint, read_progress
from art_cli.runs.directory import RunDir
from art_cli.training.curriculum.uniform import Uniform


class Rows:
    """A tracker that remembers."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, metrics: dict[str, float]) -> None:
        self.rows.append(metrics)

    def finish(self, state: str) -> None: ...


def run(model: art.TrainableModel, root: Path, stop: Stop | None = None) -> tuple[Outcome, Rows]:
    rows = Rows()

    async def go() -> Outcome:
        async with art.LocalBackend(root) as backend:
            await model.register(backend)
            return await run_loop(model, rows, stop or Stop())

    return asyncio.run(go()), rows


def with_sections(model: art.TrainableModel, **sections: Any) -> art.TrainableModel:
    model.experiment = dataclasses.replace(model.experiment, **sections)
    return model


def test_each_epoch_sees_every_scenario_once_in_another_order() -> None:
    scenarios = list(Opposites.scenarios(Opposites.Config(), "val"))[:10]
    stream = Uniform(scenarios, seed=0)
    first, second = stream.take(0, 10), stream.take(10, 10)
    assert sorted(s.id for s in first) == sorted(s.id for s in second)
    assert first != second
    assert Uniform(scenarios, seed=0).take(7, 6) == first[7:] + second[:3]


def test_a_run_evaluates_first_and_last_and_keeps_the_best(tmp_path: Path) -> None:
    model = with_sections(
        colours_model(0, steps=5),
        eval=EvalConfig(every=2, episodes=32),
        checkpoint=CheckpointConfig(every=2, keep=1),
    )
    outcome, rows = run(model, tmp_path)
    steps = [r["training_step"] for r in rows.rows if "val/reward" in r]
    assert steps == [0, 2, 4, 5]
    run_dir = RunDir(tmp_path / "test" / "seed-0")
    best = best_checkpoint(run_dir)
    assert outcome.finished and outcome.best_step == best
    assert run_dir.checkpoint_steps() == sorted({best, 5})
    rewards = {int(r["training_step"]): r["val/reward"] for r in rows.rows if "val/reward" in r}
    assert read_progress(run_dir.checkpoint(5)).val_reward == rewards[5]
    assert rewards[best or 0] == max(r for s, r in rewards.items() if s > 0)


def test_checkpoints_are_found_by_name_and_number(tmp_path: Path) -> None:
    model = with_sections(colours_model(0, steps=2), eval=None)
    run(model, tmp_path)
    run_dir = RunDir(tmp_path / "test" / "seed-0")
    assert find_checkpoint(run_dir, "last") == find_checkpoint(run_dir, "best") == 2
    assert find_checkpoint(run_dir, "2") == 2
    with pytest.raises(UsageError, match="no checkpoint '7'; expected best, last or one of: 2"):
        find_checkpoint(run_dir, "7")


def test_stopping_finishes_the_step_and_saves_it(tmp_path: Path) -> None:
    stop = Stop()
    model = with_sections(colours_model(0, steps=50), eval=None)
    rows_seen: list[float] = []

    class StopAtTwo(Rows):
        def log(self, metrics: dict[str, float]) -> None:
            rows_seen.append(metrics["training_step"])
            stop.requested = metrics["training_step"] == 2

    async def go() -> Outcome:
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            return await run_loop(model, StopAtTwo(), stop)

    outcome = asyncio.run(go())
    assert not outcome.finished and outcome.step == 2
    assert rows_seen == [1, 2]
    assert RunDir(tmp_path / "test" / "seed-0").checkpoint_steps() == [2]


def test_refill_replaces_groups_without_a_gradient(tmp_path: Path) -> None:
    train = {"steps": 1, "dynamic_sampling": True, "group_size": 2, "scenarios_per_step": 4}
    model = with_sections(colours_model(0, **train), eval=None)
    _, rows = run(model, tmp_path)
    (row,) = rows.rows
    assert row["data/groups_zero_variance"] > 0
    assert row["data/groups"] > 4
    assert model.parts.progress.cursor == row["data/groups"]


def test_every_metric_of_a_step_is_there(tmp_path: Path) -> None:
    _, rows = run(with_sections(colours_model(0, steps=1, kl_coef=0.1), eval=None), tmp_path)
    names = set(rows.rows[0])
    for name in [
        "train/reward",
        "train/reward_std",
        "loss/policy",
        "loss/kl",
        "loss/entropy",
        "loss/grad_norm",
        "loss/update_kl",
        "loss/shortened",
        "loss/clip_fraction",
        "loss/ratio_mean",
        "loss/ratio_max",
        "data/groups",
        "data/groups_zero_variance",
        "data/trajectories",
        "data/trajectories_failed",
        "data/tokens_trained",
        "data/truncated",
        "time/step_s",
        "time/rollout_s",
        "time/train_s",
        "time/sync_s",
        "throughput/rollout_tok_s",
        "throughput/train_tok_s",
        "training_step",
    ]:
        assert name in names, name


def test_a_scenario_that_comes_twice_in_a_step_is_played_anew(tmp_path: Path) -> None:
    model = colours_model(0)

    async def go() -> list[art.TrajectoryGroup]:
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            scenario = art.scenarios_of(model, "train")[0]
            return await art.gather_trajectory_groups(model, [scenario] * 2, group_size=4)

    first, second = asyncio.run(go())
    said = [[t.messages for t in g.trajectories] for g in (first, second)]
    assert said[0] != said[1]


# ---------------------------------------------------------------- rollouts that run ahead


def stale_model(staleness: int, steps: int, **train: Any) -> art.TrainableModel:
    model = with_sections(
        colours_model(0, steps=steps),
        eval=None,
        engine=EngineConfig(deterministic=False),
        checkpoint=CheckpointConfig(every=1, keep=99),
    )
    train = {"max_staleness": staleness, "scenarios_per_step": 4, "group_size": 4, **train}
    return with_sections(model, train=dataclasses.replace(model.experiment.train, **train))


def scenarios_trained(root: Path, steps: int) -> list[list[str]]:
    folder = RunDir(root / "test" / "seed-0")
    rows = [folder.read_trajectories(step, "train") for step in range(1, steps + 1)]
    return [sorted({row["scenario_id"] for row in step}) for step in rows]


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_batch_is_sampled_by_versions_at_most_so_old(tmp_path: Path, staleness: int) -> None:
    _, rows = run(stale_model(staleness, 6), tmp_path)
    ages = [r["data/staleness"] for r in rows.rows]
    assert ages[0] == 0 and 0 < max(ages) <= staleness
    folder = RunDir(tmp_path / "test" / "seed-0")
    for step in range(1, 7):
        for row in folder.read_trajectories(step, "train"):
            assert all(step - 1 - staleness <= v <= step - 1 for v in row["policy_versions"])


def test_rollouts_that_run_ahead_see_the_scenarios_in_the_same_order(tmp_path: Path) -> None:
    run(stale_model(0, 5), tmp_path / "none")
    run(stale_model(2, 5), tmp_path / "two")
    assert scenarios_trained(tmp_path / "none", 5) == scenarios_trained(tmp_path / "two", 5)


def test_what_was_ahead_when_a_run_ended_is_begun_anew_not_skipped(tmp_path: Path) -> None:
    run(stale_model(0, 6), tmp_path / "whole")
    stop = Stop()
    model = stale_model(2, 6)

    async def two_runs() -> None:
        async with art.LocalBackend(tmp_path / "parts") as backend:
            await model.register(backend)

            class StopsAtThree(Rows):
                def log(self, metrics: dict[str, float]) -> None:
                    stop.requested = metrics["training_step"] == 3

            outcome = await run_loop(model, StopsAtThree(), stop)
            assert outcome.step == 3 and not outcome.finished
        again = stale_model(2, 6)
        async with art.LocalBackend(tmp_path / "parts", resume=True) as backend:
            await again.register(backend)
            assert (await run_loop(again, Rows(), Stop())).step == 6

    asyncio.run(two_runs())
    assert scenarios_trained(tmp_path / "parts", 6) == scenarios_trained(tmp_path / "whole", 6)


# ---------------------------------------------------------------- scenarios chosen for their signal


def stopped_after(model: art.TrainableModel, step: int, root: Path) -> None:
    stop = Stop()

    class StopsThere(Rows):
        def log(self, metrics: dict[str, float]) -> None:
            stop.requested = metrics["training_step"] == step

    async def go() -> None:
        async with art.LocalBackend(root) as backend:
            await model.register(backend)
            await run_loop(model, StopsThere(), stop)

    asyncio.run(go())


def go_on(model: art.TrainableModel, root: Path) -> None:
    async def go() -> None:
        async with art.LocalBackend(root, resume=True) as backend:
            await model.register(backend)
            assert (await run_loop(model, Rows(), Stop())).finished

    asyncio.run(go())


def test_a_resumed_run_chooses_the_same_scenarios_bit_for_bit(tmp_path: Path) -> None:
    def model() -> art.TrainableModel:
        made = stale_model(0, 6, curriculum="signal")
        return with_sections(made, engine=EngineConfig())

    run(model(), tmp_path / "whole")
    stopped_after(model(), 3, tmp_path / "parts")
    go_on(model(), tmp_path / "parts")
    whole, parts = (RunDir(tmp_path / name / "test" / "seed-0") for name in ("whole", "parts"))
    for step in range(1, 7):
        files = [r.trajectory_file(step, "train").read_bytes() for r in (whole, parts)]
        assert files[0] == files[1]
    assert read_progress(whole.checkpoint(6)) == read_progress(parts.checkpoint(6))


def test_what_was_chosen_ahead_when_a_run_ended_is_played_when_it_goes_on(tmp_path: Path) -> None:
    stopped_after(stale_model(2, 6, curriculum="signal"), 3, tmp_path)
    kept = read_progress(RunDir(tmp_path / "test" / "seed-0").checkpoint(3)).curriculum
    assert kept is not None and [len(ids) for ids in kept["taken"]] == [4, 4, 4]
    go_on(stale_model(2, 6, curriculum="signal"), tmp_path)
    assert scenarios_trained(tmp_path, 6)[3:] == [sorted(ids) for ids in kept["taken"]]


def test_a_checkpoint_of_a_run_that_chooses_nothing_is_as_it_was(tmp_path: Path) -> None:
    run(with_sections(colours_model(0, steps=1), eval=None), tmp_path)
    file = RunDir(tmp_path / "test" / "seed-0").checkpoint(1) / "progress.json"
    expected = {"step": 1, "cursor": 8, "val_reward": None, "microbatch_tokens": None}
    assert json.loads(file.read_text()) == expected


def test_a_refilled_batch_counts_all_its_groups(tmp_path: Path) -> None:
    small = {
        "dynamic_sampling": True,
        "group_size": 2,
        "scenarios_per_step": 4,
        "curriculum": "signal",
    }
    model = with_sections(colours_model(0, steps=1, **small), eval=None)
    _, rows = run(model, tmp_path)
    kept = model.parts.progress.curriculum
    assert kept is not None
    counts = kept["state"]["counts"].items()
    played = sum(num for name, (_, num, _) in counts if name.startswith("scenario"))
    assert played == rows.rows[0]["data/groups"] > 4
