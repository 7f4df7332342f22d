"""Training with a judge that is really asked: what is learned, lost, paid for and kept."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from colours import OPPOSITE, Opposites, colours_model
from loopback_judge import Answer, Ask, LoopbackJudge, Step, entries, refused, scored

import art_cli as art
from art_cli.config.sections.engine import EngineConfig
from art_cli.config.sections.eval import EvalConfig
from art_cli.config.sections.judge import JudgeConfig
from art_cli.config.sections.llm import PricesConfig
from art_cli.config.sections.model import AdapterConfig
from art_cli.config.sections.reward import RewardConfig
from art_cli.errors import BudgetError, JudgeError, PreflightError
from art_cli.loop import Outcome, run_loop
from art_cli.runs.directory import RunDir
from art_cli.training.algorithm.advantage import has_gradient
from art_cli.training.model import Stop

KEY = "my-own-secret-0123456789"
A_DOLLAR = PricesConfig(input=1000.0, output=0.0)  # for each call: loopback reads 1000 tokens


class Unscored(Opposites):
    """Whose train episodes only a judge can score."""

    async def score(self, trajectory: art.Trajectory) -> float | None:
        return None if self.scenario.split == "train" else await super().score(trajectory)

    async def judge_context(self) -> str:
        return f"{len(self.asked)} colours were asked"


class Rows(list[dict[str, float]]):
    """A tracker that remembers."""

    def log(self, metrics: dict[str, float]) -> None:
        self.append(metrics)

    def finish(self, state: str) -> None: ...


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("art_cli.llms.remote.FIRST_WAIT", 0.01)


def reads(ask: Ask) -> Answer:
    """A judge that knows the task and reads each transcript: the share of right answers."""
    opening = ask.document["opening"]

    def share(block: dict[str, Any]) -> float:
        said = [m["content"] for m in [*opening, *block["messages"]]]
        right = [OPPOSITE.get(a) == b for a, b in zip(said[::2], said[1::2], strict=False)]
        return sum(right) / 2

    return scored(share)(ask)


def model_of(
    server: LoopbackJudge | None, steps: int, env: type[art.Env] = Unscored, **judge: Any
) -> art.TrainableModel:
    """The tiny task, judged by this server alone; reward and eval are sections of their own."""
    sections = {"reward": judge.pop("reward", None), "eval": judge.pop("eval", None)}
    model = colours_model(
        0, steps=steps, scenarios_per_step=4, group_size=6, **judge.pop("more", {})
    )
    model.env_class = env
    sft = model.experiment.sft
    if sft and steps < 10:  # nobody looks at how well it does
        sections["sft"] = dataclasses.replace(sft, num_demonstrations=120)
    cfg = None
    if server:
        cfg = JudgeConfig(**{"model": server.model, "api_base": server.api_base} | judge)
    model.experiment = dataclasses.replace(model.experiment, judge=cfg, **sections)
    model.config_yaml = yaml.safe_dump(dataclasses.asdict(model.experiment))
    return model


def run(model: art.TrainableModel, root: Path, resume: bool = False) -> tuple[Outcome, Rows]:
    rows = Rows()

    async def go() -> Outcome:
        async with art.LocalBackend(root, resume=resume) as backend:
            await model.register(backend)
            return await run_loop(model, rows, Stop())

    return asyncio.run(go()), rows


def run_dir(root: Path) -> RunDir:
    return RunDir(root / "test" / "seed-0")


def stored(root: Path) -> list[dict[str, Any]]:
    """All trajectories that were trained on, or were not because of the judge."""
    run = run_dir(root)
    return [t for s in run.trajectory_steps("train") for t in run.read_trajectories(s, "train")]


def assert_same_weights(one: art.TrainableModel, other: art.TrainableModel) -> None:
    pairs = zip(one.parts.policy.trainable, other.parts.policy.trainable, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


# ---------------------------------------------------------------- learning


@pytest.mark.slow
def test_reward_rises_on_held_out_scenarios_with_the_judge_alone(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        model = model_of(server, steps=20, eval=EvalConfig(every=100, episodes=64))
        outcome, rows = run(model, tmp_path)
    assert outcome.baseline and outcome.final
    assert outcome.baseline.reward < 0.5
    assert outcome.final.reward > outcome.baseline.reward + 0.2
    assert server.asked[1].document["trajectories"][0]["outcome"] == "2 colours were asked"
    assert sum(r["judge/calls"] for r in rows if "judge/calls" in r) == len(server.judged)


class NeverScored(Unscored):
    """Of which nobody but a judge can say anything."""

    async def score(self, trajectory: art.Trajectory) -> float | None:
        return None


@pytest.mark.slow
def test_without_any_score_progress_is_how_often_the_untrained_policy_is_beaten(
    tmp_path: Path,
) -> None:
    with LoopbackJudge(then=reads) as server:
        evaluated = EvalConfig(every=100, episodes=64)
        outcome, _ = run(model_of(server, 20, NeverScored, eval=evaluated), tmp_path)
    assert outcome.baseline and outcome.final
    assert outcome.baseline.reward == 0.5  # it is as good as itself
    assert outcome.final.reward > 0.6
    rows = run_dir(tmp_path).read_trajectories(20, "val")
    assert any("because of" in row["reward_parts"].get("explanation", "") for row in rows)


def test_a_judge_that_fails_at_every_held_out_pair_stops_the_run_with_its_steps_saved(
    tmp_path: Path,
) -> None:
    def fails_late(ask: Ask) -> Answer:
        is_pair = len(ask.document["trajectories"]) == 2 and not ask.is_first_question
        return refused(400)(ask) if is_pair else reads(ask)

    with LoopbackJudge(then=fails_late) as server:
        model = model_of(server, 2, NeverScored, eval=EvalConfig(every=1, episodes=4))
        with pytest.raises(JudgeError, match="the judge failed at all 4 pairs"):
            run(model, tmp_path)
    assert run_dir(tmp_path).checkpoint_steps() == [1]


def test_a_judge_that_says_what_the_env_would_say_gives_the_same_weights(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        judged, scored_by_env = model_of(server, 4), model_of(None, 4, env=Opposites)
        run(judged, tmp_path / "a")
        run(scored_by_env, tmp_path / "b")
    assert_same_weights(judged, scored_by_env)


def test_a_trajectory_keeps_the_judges_score_and_reasons_and_the_envs_own(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        model = model_of(server, 1, Opposites, reward=RewardConfig(env=1.0, judge=0.5))
        _, rows = run(model, tmp_path)
    judged = [
        t for t in stored(tmp_path) if t["reward_parts"]["explanation"] != "there is nothing else"
    ]
    for t in judged:
        expected = t["reward_parts"]["env"] + 0.5 * t["reward_parts"]["judge"]
        assert t["reward"] == pytest.approx(expected)
        assert t["reward_parts"]["explanation"] and KEY not in str(t)
    (row,) = rows
    names = {"calls", "cached", "retries", "failures", "latency_s", "score_mean"}
    assert {f"judge/{n}" for n in names | {"spread", "tie_rate"}} | {"costs/judge_usd"} <= set(row)
    assert row["train/env_reward"] == pytest.approx(
        sum(t["reward_parts"]["env"] for t in judged) / len(judged)
    )


def test_judging_overlaps_with_the_rollouts_of_other_groups(tmp_path: Path) -> None:
    events: list[str] = []

    class Slow(Opposites):
        async def score(self, trajectory: art.Trajectory) -> float:
            if self.scenario.id == "train-1" and trajectory.sequences:  # not in demonstrations
                await asyncio.sleep(0.2)
                events.append("played")
            return await super().score(trajectory)

    async def judge(group: art.TrajectoryGroup) -> None:
        events.append(f"judged {group.trajectories[0].scenario.id}")

    async def go() -> None:
        model = model_of(None, 1, env=Slow)
        model.experiment = dataclasses.replace(model.experiment, sft=None)
        async with art.LocalBackend(tmp_path) as backend:
            await model.register(backend)
            two = art.scenarios_of(model, "train")[:2]
            await art.gather_trajectory_groups(model, two, group_size=2, after_each=judge)

    asyncio.run(go())
    assert events == ["judged train-0", "played", "played", "judged train-1"]


# ---------------------------------------------------------------- a judge that fails


def every_third(step: Step) -> Step:
    """Good but for every third call."""
    num = 0

    def answer(ask: Ask) -> Answer:
        nonlocal num
        num += not ask.is_first_question
        return step(ask) if num % 3 == 0 and num else reads(ask)

    return answer


def test_with_every_third_call_failing_training_completes_without_the_failed_groups(
    tmp_path: Path,
) -> None:
    with LoopbackJudge(then=every_third(refused(400, "no"))) as server:
        outcome, rows = run(model_of(server, 4), tmp_path)
    assert outcome.finished
    rewards: dict[tuple[int, int], list[float | None]] = {}
    tokens = dict.fromkeys((row["training_step"] for row in rows), 0)
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for t in stored(tmp_path):
        groups.setdefault((t["step"], t["group"]), []).append(t)
    failed = 0
    for (step, _), group in groups.items():
        rewards = [t["reward"] for t in group]
        if None in rewards:
            assert set(rewards) == {None}
            assert all(t["error"].startswith("the judge failed: ") for t in group)
            failed += 1
        elif has_gradient(rewards):
            tokens[step] += sum(t["num_sampled"] for t in group)
    assert failed == sum(row["judge/failures"] for row in rows) == len(server.judged) // 3 > 2
    for row in rows:
        assert row["data/tokens_trained"] <= tokens[row["training_step"]]


def test_what_was_wrong_once_is_repaired_and_nothing_is_lost(tmp_path: Path) -> None:
    def spoilt(ask: Ask) -> Answer:
        again = len(ask.messages) > 2
        return reads(ask) if again else Answer(text=str(entries(ask)))  # with Python's quotes

    with LoopbackJudge(then=every_third(spoilt)) as server:
        model = model_of(server, 3)
        _, rows = run(model, tmp_path / "a")
        undisturbed = model_of(None, 3, env=Opposites)
        run(undisturbed, tmp_path / "b")
    assert sum(row["judge/failures"] for row in rows) == 0
    assert any(len(ask.messages) == 4 for ask in server.asked)
    assert_same_weights(model, undisturbed)


def test_on_failure_env_trains_on_with_the_envs_own_score(tmp_path: Path) -> None:
    def only_the_first(ask: Ask) -> Answer:
        return reads(ask) if ask.is_first_question else Answer(status=400, text="no")

    with LoopbackJudge(then=only_the_first) as server:
        model = model_of(server, 3, Opposites, on_failure="env")
        _, rows = run(model, tmp_path / "a")
    by_env = model_of(None, 3, env=Opposites)
    run(by_env, tmp_path / "b")
    assert all(row["judge/failures"] > 0 for row in rows)
    assert_same_weights(model, by_env)


def fails_after(num: int) -> Step:
    """Good for so many calls beside the first question, then never again."""
    left = num

    def answer(ask: Ask) -> Answer:
        nonlocal left
        left -= not ask.is_first_question
        return reads(ask) if left >= 0 else Answer(status=400, text="the model is gone")

    return answer


@pytest.mark.parametrize(
    ("on_failure", "words"),
    [
        pytest.param("stop", "the model is gone", marks=pytest.mark.slow),
        ("drop", "failed at all 4 groups"),
    ],
)
def test_a_judge_that_is_gone_ends_the_run_with_all_finished_steps_saved(
    tmp_path: Path, on_failure: str, words: str
) -> None:
    with LoopbackJudge(then=fails_after(8)) as server, pytest.raises(JudgeError, match=words):
        run(model_of(server, 6, on_failure=on_failure, cache=False), tmp_path)
    (last,) = run_dir(tmp_path).checkpoint_steps()
    assert 1 <= last < 6
    # Someone else is asked from now on, and the run ends as if nothing had happened.
    with LoopbackJudge(then=reads) as server:
        resumed = model_of(server, 6, on_failure=on_failure, cache=False)
        outcome, _ = run(resumed, tmp_path, resume=True)
    undisturbed = model_of(None, 6, env=Opposites)
    run(undisturbed, tmp_path / "b")
    assert outcome.finished
    if on_failure == "stop":
        assert_same_weights(resumed, undisturbed)


@pytest.mark.parametrize("status", [401, 404])
def test_a_judge_that_cannot_be_used_is_told_before_anything_is_made(
    tmp_path: Path, status: int
) -> None:
    with LoopbackJudge(then=refused(status, "go away")) as server:
        with pytest.raises(PreflightError, match=r"the judge cannot be used: .*go away"):
            run(model_of(server, 1), tmp_path)
        assert len(server.asked) == 1 and not run_dir(tmp_path).base.exists()


# ---------------------------------------------------------------- money


@pytest.mark.slow
def test_when_the_money_is_spent_the_run_is_saved_and_goes_on_with_more(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        with pytest.raises(BudgetError, match=r"max_usd=13.5 is used up"):
            run(model_of(server, 6, max_usd=13.5, prices=A_DOLLAR), tmp_path / "a")
        asked = len(server.asked)  # a dollar each, and there must be enough for the dearest
        assert 8 <= asked <= 13
        (last,) = run_dir(tmp_path / "a").checkpoint_steps()
        assert 0 < last < 6
        resumed = model_of(server, 6, max_usd=1000.0, prices=A_DOLLAR)
        outcome, rows = run(resumed, tmp_path / "a", resume=True)
        assert outcome.finished and rows[-1]["costs/judge_usd"] == len(server.asked)
        assert sum(row["judge/cached"] for row in rows) == asked - 1 - calls_until(last, tmp_path)
        judged = [ask.text for ask in server.judged]
        assert len(set(judged)) == len(judged)
    with LoopbackJudge(then=reads) as another:
        undisturbed = model_of(another, 6)
        run(undisturbed, tmp_path / "b")
    assert len(another.judged) == len(judged)
    assert_same_weights(resumed, undisturbed)


def calls_until(step: int, root: Path) -> int:
    """How often the judge was asked in the steps up to this one, by what was stored."""
    groups = {
        (t["step"], t["group"])
        for t in stored(root / "a")
        if t["step"] <= step and "else to compare" not in t["reward_parts"]["explanation"]
    }
    return len(groups)


def test_with_too_little_money_for_a_step_the_same_run_can_be_started_again(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        with pytest.raises(BudgetError):
            run(model_of(server, 2, max_usd=2.0, prices=A_DOLLAR), tmp_path)
        assert run_dir(tmp_path).checkpoint_steps() == []
        more = model_of(server, 2, max_usd=100.0, prices=A_DOLLAR)
        assert run(more, tmp_path, resume=True)[0].finished


def test_a_repeated_run_pays_nothing(tmp_path: Path) -> None:
    with LoopbackJudge(then=reads) as server:
        run(model_of(server, 2, prices=A_DOLLAR), tmp_path / "a")
        before = len(server.asked)
        _, rows = run(model_of(server, 2, prices=A_DOLLAR), tmp_path / "b")
        assert len(server.asked) == before + 1 and server.asked[-1].is_first_question
    assert sum(row["judge/cached"] for row in rows) == before - 1


# ---------------------------------------------------------------- secrets


def test_a_key_is_in_no_file_and_no_metric(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def tells(ask: Ask) -> Answer:
        return Answer(status=400, text=f"not with {ask.headers['authorization']}")

    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    with LoopbackJudge(then=every_third(tells)) as server:
        _, rows = run(model_of(server, 2, api_key_env="LOOPBACK_KEY"), tmp_path)
        assert all(KEY in ask.headers["authorization"] for ask in server.asked)
    assert any(t["error"] and "not with" in t["error"] for t in stored(tmp_path))
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert any(p.is_relative_to(tmp_path / "cache") for p in files)
    for file in files:
        content = file.read_bytes()
        content = gzip.decompress(content) if file.suffix == ".gz" else content
        assert KEY.encode() not in content, file
    assert KEY not in str([rows, *capfd.readouterr()]) + caplog.text


# ---------------------------------------------------------------- the run's own base as judge


def test_the_reference_judge_runs_on_the_runs_own_engine(tmp_path: Path) -> None:
    adapter = {"adapter": AdapterConfig(rank=4, alpha=8)}
    model = model_of(None, 1, Opposites, more=adapter)
    judge = JudgeConfig(model="reference", on_failure="env")  # a tiny base can only babble
    engine = EngineConfig(max_model_len=2048)
    model.experiment = dataclasses.replace(model.experiment, judge=judge, engine=engine)
    outcome, (row,) = run(model, tmp_path)
    assert outcome.finished and row["costs/judge_usd"] == 0
    assert row["judge/failures"] == 4 and row["train/reward"] == row["train/env_reward"]
