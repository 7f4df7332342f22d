"""`art replay`: an episode of the store against its env, which may have changed since."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shown_runs import trajectory, write_step
from typer.testing import CliRunner, Result

from art_cli.cli.inputs import load
from art_cli.cli.main import app
from art_cli.envs.registry import env_class
from art_cli.errors import ArtError, UsageError
from art_cli.inspection.provenance import note_start
from art_cli.rollout.rollout import play_episode
from art_cli.runs.directory import RunDir
from art_cli.types import Step, Trajectory, TrajectoryGroup

ENV = '''
import random
import art_cli as art

class Till(art.Env):
    """Sell, then say what was paid."""

    num_scenarios = {"train": 4, "val": 2, "test": 2}

    async def start(self):
        self.paid = self.rng.randint(1, 9)
        self.sold = 0
        return f"the price is {self.paid}"

    @art.tool()
    def sell(self, item: str) -> str:
        """Sell."""
        if item == "gun":
            raise art.ToolError("not for sale")
        if item == "bomb":
            raise RuntimeError("boom")
        self.sold += 1
        return f"sold {item} for {self.paid}"

    async def reply(self, text):
        return art.Done() if text == "bye" else "say bye"

    async def score(self, trajectory):
        self.metrics["sold"] = self.sold
        return self.sold / trajectory.num_turns
'''
CONFIG = """
project: test
name: till
env: {use: "env.py:Till"}
model: {base: tiny, adapter: null}
train: {steps: 1}
"""


def call(item: str) -> str:
    return f'<tool_call>{{"name": "sell", "arguments": {{"item": "{item}"}}}}</tool_call>'


GOOD = (call("mug"), call("gun"), "what now", "bye")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A run whose first group has three siblings: two of them alike."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.py").write_text(ENV)
    run = RunDir.create(tmp_path / "runs" / "test" / "till")
    run.config.write_text(CONFIG)
    siblings = [played(words) for words in (GOOD, GOOD, ("bye",))]
    run.write_trajectories(1, "train", [TrajectoryGroup(siblings)])
    return run


def played(words: tuple[str, ...]) -> Trajectory:
    env = env_class("env.py:Till")
    scenario = next(iter(env.scenarios(None, "train")))
    said: Iterator[str] = iter(words)
    return play_episode(env(scenario, env.Config()), said.__next__)


def changed(before: str, after: str) -> None:
    file = Path("env.py")
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))


def replay(*words: object) -> Result:
    command = ["replay", *map(str, words)]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "80"})
    if isinstance(result.exception, ArtError):
        raise result.exception
    return result


def one(run: RunDir, *words: object) -> Any:
    return json.loads(replay(run.root, 1, "train-0", "--sibling", 0, "--json", *words).stdout)


def test_what_has_not_changed_plays_as_it_did(run: RunDir) -> None:
    result = replay(run.root, 1, 0)
    assert result.exit_code == 0, result.output
    assert "sibling 0: as it was; 4 answers of the env, reward 0.250" in result.stdout
    assert "sibling 2: as it was; 1 answer of the env, reward 0.000" in result.stdout
    assert result.stdout.splitlines()[-1] == "The env answers as it did."


def test_the_first_answer_that_differs_is_named_with_both_texts(run: RunDir) -> None:
    changed('"say bye"', '"please say bye"')
    result = replay(run.root, 1, "train-0")
    said = " ".join(result.stdout.split())
    assert result.exit_code == 1
    assert "sibling 0: differs, first in turn 2, reply() stored say bye now please say bye" in said
    assert "sibling 2: as it was" in said and "2 of 3 differ" in said
    assert "Played twice now, they are alike" in said


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("return self.sold / trajectory.num_turns", "return 1.0", "the reward"),
        ("the price is", "the cost is", "the opening"),
        ('self.metrics["sold"] = self.sold', 'self.metrics["sold"] = 7', "the metric sold"),
        ('art.Done() if text == "bye" else', "", "turn 3, reply()"),
        ("self.sold += 1", "return art.Done()", "turn 0, sell()"),
        ("self.sold += 1", "raise RuntimeError('x')", "how it ended"),
        ('"train": 4', '"train": 4 - 4', "the scenario"),  # no size twice: Python goes by it
    ],
)
def test_what_differs_is_found_wherever_it_is(
    run: RunDir, before: str, after: str, place: str
) -> None:
    changed(before, after)
    [found] = one(run)["siblings"]
    assert found["parting"]["place"] == place and found["is_chance"] is False


def test_an_env_that_is_not_deterministic_is_told_from_one_that_has_changed(run: RunDir) -> None:
    changed("for {self.paid}", "for {random.random()}")
    assert one(run)["siblings"][0]["is_chance"] is True
    assert "the env is not deterministic" in " ".join(replay(run.root, 1, 0).stdout.split())


def test_an_episode_that_failed_fails_again(run: RunDir) -> None:
    with pytest.raises(RuntimeError, match="boom"):
        played((call("bomb"),))
    row = played(GOOD)
    row.steps = [art_step("mug", "sold mug for 8"), art_step("bomb", None)]
    row.steps[0].result = played(GOOD).steps[0].result
    row.reward, row.stop_reason = None, "error"
    row.error = "env.py:1: RuntimeError: another"
    run.write_trajectories(2, "train", [TrajectoryGroup([row])])
    [found] = json.loads(replay(run.root, 2, 0, "--json").stdout)["siblings"]
    assert found["parting"]["place"] == "how it ended" and "boom" in found["parting"]["now"]
    row.error = "/elsewhere/env.py:999: RuntimeError: boom\nTraceback ..."
    run.write_trajectories(2, "train", [TrajectoryGroup([row])])
    assert "it fails as it did" in replay(run.root, 2, 0).stdout


def art_step(item: str, result: str | None) -> Step:
    return Step(turn=item == "bomb", tool="sell", arguments={"item": item}, result=result)


def test_the_agents_steps_are_enough_where_its_words_are_its_own(run: RunDir) -> None:
    row = played(GOOD)
    row.messages = [{"role": "user", "content": "its own prompt"}]
    row.metrics["crashed"] = 0.0
    run.write_trajectories(2, "train", [TrajectoryGroup([row])])
    hosted = "agent: {use: program, command: [my-agent]}\n"
    run.config.write_text(CONFIG + hosted)
    assert replay(run.root, 2, 0).exit_code == 0


def test_changed_code_of_the_env_is_told(run: RunDir) -> None:
    note_start(run, load([str(run.config)]))
    assert one(run)["env_code_changed"] is False
    changed('"say bye"', '"please say bye"')
    assert "The code of the env is another than the run's." in replay(run.root, 1, 0).stdout


def test_break_stops_before_each_call_with_the_env_at_hand(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[tuple[str, int]] = []

    def hook(*_: Any, **__: Any) -> None:
        frame = sys._getframe(1)
        stops.append((frame.f_locals["method"].__name__, getattr(frame.f_locals["env"], "sold", 0)))

    monkeypatch.setenv("PYTHONBREAKPOINT", "set")
    monkeypatch.setattr(sys, "breakpointhook", hook)
    result = replay(run.root, 1, 0, "--sibling", 0, "--break")
    assert stops == [
        ("start", 0),
        ("sell", 0),
        ("sell", 1),
        ("reply", 1),
        ("reply", 1),
        ("score", 1),
    ]
    assert result.exit_code == 0 and "sell(item='mug')   (s: step into it" in result.stdout


def test_what_cannot_be_replayed_is_told(run: RunDir) -> None:
    with pytest.raises(UsageError, match="has no sibling 7"):
        replay(run.root, 1, 0, "--sibling", 7)
    with pytest.raises(UsageError, match=r"name its sibling: --sibling \(0, 1, 2\)"):
        replay(run.root, 1, 0, "--break")
    with pytest.raises(UsageError, match="train has 1"):
        replay(run.root, 5, 0)
    damaged = trajectory(3, "train", 0, 0, steps=[{"tool": "sell"}])
    write_step(run.root, 3, "train", [damaged])
    with pytest.raises(UsageError, match="sibling 0 cannot be played again"):
        replay(run.root, 3, 0)
    changed("self.sold = 0", "self.sold = 0; self.services.llm(art.LLMConfig(model='a/b'))")
    with pytest.raises(UsageError, match="whose answers are not stored"):
        replay(run.root, 1, 0)


def test_a_call_that_may_write_to_a_users_data_is_made_again_only_if_allowed(run: RunDir) -> None:
    changed("    num_scenarios", "    has_side_effects = True\n    num_scenarios")
    changed("@art.tool()", "@art.tool(writes=True)")
    changed("self.sold += 1", "self.sold += 1; open('sold', 'w').close()")
    with pytest.raises(
        UsageError, match=r"may write to the server's own data: sell\. .* --allow-w"
    ):
        replay(run.root, 1, 0)
    assert not Path("sold").exists()
    assert replay(run.root, 1, 0, "--sibling", 2).exit_code == 0  # which called nothing
    assert replay(run.root, 1, 0, "--allow-writes").exit_code == 0 and Path("sold").exists()
