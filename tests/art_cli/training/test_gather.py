"""Many episodes at once: groups, failures, and that all follows from seeds."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import pytest
from colours import Opposites, colours_model

import art_cli as art
from art_cli.errors import AgentError, EnvError, UsageError
from art_cli.training.gather import gather_trajectory_groups, scenarios_of, score_groups


class Fails(Opposites):
    """Fails in some scenarios, with a line of its own."""

    failing = frozenset({"train-0"})

    async def score(self, trajectory: art.Trajectory) -> float:
        if trajectory.sequences and self.scenario.id in self.failing:  # not in demonstrations
            raise LookupError(self.scenario.id)
        return await super().score(trajectory)


class AllFail(Fails):
    failing = frozenset(f"train-{i}" for i in range(10))


class NoScore(Opposites):
    async def score(self, trajectory: art.Trajectory) -> None:
        return None


class NoScenarios(Opposites):
    num_scenarios: ClassVar = {"train": 4, "val": 0, "test": 0}


class BadScenarios(Opposites):
    @classmethod
    def scenarios(cls, cfg: Any, split: str) -> Any:
        yield from ()
        raise KeyError(split)


def groups(
    folder: Path, env: type[art.Env] = Opposites, seed: int = 0, times: int = 1, **changes: Any
) -> list[art.TrajectoryGroup]:
    """Two groups of three, of the last of some gatherings in a row."""

    async def run() -> list[art.TrajectoryGroup]:
        model = untrained(env, seed)
        async with art.LocalBackend(folder) as backend:
            await model.register(backend)
            scenarios = scenarios_of(model, "train")[:2]
            for _ in range(times):
                found = await gather_trajectory_groups(model, scenarios, group_size=3, **changes)
        return found

    return asyncio.run(run())


def untrained(env: type[art.Env], seed: int) -> art.TrainableModel:
    model = colours_model(seed)
    model.env_class = env
    model.experiment = dataclasses.replace(model.experiment, sft=None)
    return model


def sampled(found: list[art.TrajectoryGroup]) -> list[list[int]]:
    return [s.ids for g in found for t in g.trajectories for s in t.sequences]


def test_a_group_has_its_scenarios_siblings(tmp_path: Path) -> None:
    found = groups(tmp_path)
    ids = [[t.scenario.id for t in g.valid] for g in found]
    assert ids == [["train-0"] * 3, ["train-1"] * 3]
    prompts = {t.messages[0]["content"] for t in found[0].trajectories}
    assert len(prompts) == 1 and len({str(ids) for ids in sampled(found)}) == 6


def test_the_same_seed_gives_the_same_trajectories(tmp_path: Path) -> None:
    first = sampled(groups(tmp_path / "a"))
    assert sampled(groups(tmp_path / "b")) == first
    assert sampled(groups(tmp_path / "c", times=2)) == first
    assert sampled(groups(tmp_path / "d", purpose="eval")) != first


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[Any, ...]] = []
    groups(tmp_path, report=lambda *what: told.append(what))
    assert told == [("rollout", n, 6) for n in range(1, 7)]


def test_failed_episodes_leave_their_group(tmp_path: Path) -> None:
    bad, good = groups(tmp_path, Fails)
    assert (bad.rewards, len(bad.trajectories)) == ([], 3)
    assert len(good.rewards) == 3
    assert "LookupError: train-0" in (bad.trajectories[0].error or "")


def test_if_all_fail_the_first_error_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=rf"all 6 episodes.*\n  {__file__}:\d+: LookupError") as e:
        groups(tmp_path, AllFail)
    assert "Traceback" not in str(e.value)


def test_scores_of_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"score\(\) gave None for every trajectory"):
        groups(tmp_path, NoScore)


def test_a_split_without_scenarios_is_told() -> None:
    with pytest.raises(UsageError, match=r"NoScenarios.scenarios\(\) gives no val scenarios"):
        scenarios_of(untrained(NoScenarios, 0), "val")


def test_scenarios_that_raise_have_their_line() -> None:
    with pytest.raises(UsageError, match=rf"failed for val: {__file__}:\d+: KeyError: 'val'"):
        scenarios_of(untrained(BadScenarios, 0), "val")


class Waits(Opposites):
    """The second scenario cannot end before the first one's group has been scored."""

    scored: ClassVar[asyncio.Event]

    async def score(self, trajectory: art.Trajectory) -> float:
        if self.scenario.id == "train-1" and trajectory.sequences:
            await asyncio.wait_for(self.scored.wait(), 300)
        return await super().score(trajectory)


def test_a_group_is_scored_while_others_still_play(tmp_path: Path) -> None:
    Waits.scored = asyncio.Event()
    done: list[str] = []

    async def score(group: art.TrajectoryGroup) -> None:
        done.append(group.trajectories[0].scenario.id)
        Waits.scored.set()

    found = groups(tmp_path, Waits, after_each=score)
    assert done == ["train-0", "train-1"]
    assert all(len(g.valid) == 3 for g in found)


def test_what_scoring_raises_is_raised_when_all_groups_have_been_seen_through(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    async def score(group: art.TrajectoryGroup) -> None:
        seen.append(group.trajectories[0].scenario.id)
        raise LookupError(seen[-1])

    with pytest.raises(LookupError, match="train-0"):
        groups(tmp_path, after_each=score)
    assert sorted(seen) == ["train-0", "train-1"]


class FirstFails(Fails):
    """Fails in every episode of the first scenario, and in one of the second."""

    once: ClassVar[list[str]]

    async def score(self, trajectory: art.Trajectory) -> float:
        if trajectory.sequences and self.scenario.id == "train-1" and self.once:
            raise LookupError(self.once.pop())
        return await super().score(trajectory)


def test_a_group_is_scored_unless_all_of_it_failed(tmp_path: Path) -> None:
    FirstFails.once = ["one of three"]
    scored: list[art.TrajectoryGroup] = []

    async def score(group: art.TrajectoryGroup) -> None:
        scored.append(group)

    _, partly = groups(tmp_path, FirstFails, after_each=score)
    assert scored == [partly] and len(partly.valid) == 2


def test_a_step_in_which_every_agent_crashed_ends_the_run_with_its_last_words() -> None:
    def played(crashed: float) -> art.Trajectory:
        scenario = art.Scenario(id="train-0", split="train", seed=0)
        said = "\n".join(f"line {n}" for n in range(40))
        crash = f"the agent failed: exit code 1; it printed:\n{said}"
        return art.Trajectory(scenario=scenario, reward=0.0, crash=crash if crashed else None)

    async def gathered(*crashed: float) -> Any:
        async def groups() -> Any:
            yield 0, art.TrajectoryGroup([played(c) for c in crashed])

        return await score_groups(groups(), None)

    asyncio.run(gathered(1.0, 0.0))
    with pytest.raises(AgentError, match=r"(?s)all 2 episodes .* exit code 1; .* line 0\n") as e:
        asyncio.run(gathered(1.0, 1.0))
    assert str(e.value).endswith("line 39")
