"""Who chooses the scenarios: the built-in ones, and what is said of one's own."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from art_cli.errors import UsageError
from art_cli.training.curriculum.build import make_sampler, try_sampler
from art_cli.training.curriculum.signal import EXPLORE_EVERY, HALF_LIFE, Signal
from art_cli.types import Scenario, Trajectory, TrajectoryGroup


def scenarios(num: int, **data: Any) -> list[Scenario]:
    return [Scenario(id=f"train-{i}", split="train", seed=i, data=data) for i in range(num)]


def group(scenario: Scenario, *, differs: bool) -> TrajectoryGroup:
    rewards = [1.0, 0.0] if differs else [1.0, 1.0]
    return TrajectoryGroup([Trajectory(scenario=scenario, reward=r) for r in rewards])


FREE = EXPLORE_EVERY - 1  # a place that is explored: what comes of it is known of all


def test_a_scenario_that_was_not_played_borrows_from_its_kind_and_that_from_all() -> None:
    seen, kin = scenarios(2, kind="refund")
    stranger = Scenario(id="train-2", split="train", seed=2, data={"kind": "chat"})
    signal = Signal([seen, kin, stranger], seed=0)
    assert [signal.chance(s) for s in (seen, kin, stranger)] == [0.5, 0.5, 0.5]
    signal.note(FREE, [group(seen, differs=True)])
    # Each prior counts for four groups: all (1 + 4 * 0.5) / 5, refund (1 + 4 * 0.6) / 5, and so on.
    found = [signal.chance(s) for s in (stranger, kin, seen)]
    assert found == pytest.approx([0.6, 0.68, 0.744])


def test_what_was_chosen_says_nothing_of_all() -> None:
    one, other = scenarios(2)
    signal = Signal([one, other], seed=0)
    signal.note(0, [group(one, differs=True)])
    assert [signal.chance(s) for s in (one, other)] == pytest.approx([0.6, 0.5])


def test_what_was_seen_fades_as_the_policy_moves() -> None:
    (one,) = scenarios(1)
    signal = Signal([one], seed=0)
    signal.note(FREE, [group(one, differs=False)])
    assert signal.chance(one) == pytest.approx(4 / 5 * 4 / 5 * 0.5)
    for _ in range(HALF_LIFE):
        signal.note(0, [])
    # Nothing is left of what is known of all, and half of what is known of the scenario:
    # -0.4 of one group, by a prior of four.
    assert signal.chance(one) == pytest.approx(0.5 - 0.2 / 4.5, abs=1e-3)


def play(signal: Signal, num_batches: int, num: int, differing: set[str]) -> list[list[Scenario]]:
    """Let it choose batches of which the groups of some scenarios differ."""
    batches = []
    for n in range(num_batches):
        batch = signal.take(n * num, num)
        signal.note(n * num, [group(s, differs=s.id in differing) for s in batch])
        batches.append(batch)
    return batches


def test_scenarios_that_differ_come_often_and_none_is_starved() -> None:
    every = scenarios(40)
    differing = {s.id for s in every[:8]}
    batches = play(Signal(every, seed=0), 4 * EXPLORE_EVERY * 40 // 8, 8, differing)
    late = [s.id for batch in batches[-20:] for s in batch]
    assert sum(id in differing for id in late) / len(late) > 0.6  # one in five by chance
    for begin in range(0, len(batches), EXPLORE_EVERY * 40 // 8):
        seen = {s.id for batch in batches[begin : begin + EXPLORE_EVERY * 40 // 8] for s in batch}
        assert len(seen) == 40
    assert all(len({s.id for s in batch}) == 8 for batch in batches)


def test_kinds_that_differ_come_often_though_no_scenario_comes_twice() -> None:
    every = [
        Scenario(id=f"train-{i}", split="train", seed=i, data={"kind": "abcd"[i % 4]})
        for i in range(4000)
    ]
    batches = play(Signal(every, 0), 40, 8, {s.id for s in every if s.data["kind"] == "c"})
    late = [s.data["kind"] for batch in batches[-20:] for s in batch]
    assert late.count("c") / len(late) > 0.6


def test_kinds_that_are_alike_are_mixed() -> None:
    every = [
        Scenario(id=f"train-{i}", split="train", seed=i, data={"kind": "ab"[i % 2]})
        for i in range(4000)
    ]
    batches = play(Signal(every, 0), 60, 16, {s.id for s in every if s.seed % 4 < 2})
    common = [max(Counter(s.data["kind"] for s in b).values()) / 16 for b in batches[20:]]
    assert sum(common) / len(common) < 0.75  # 0.84 where the highest estimate decides


def test_it_says_how_well_it_foresaw_and_what_it_explored() -> None:
    every = scenarios(8)
    signal = Signal(every, seed=0)
    batch = signal.take(0, 8)
    numbers = signal.note(0, [group(s, differs=i < 4) for i, s in enumerate(batch)])
    # Places 3 and 7 are explored: of these one differed, of the six others three.
    assert numbers == {
        "explored": 0.25,
        "expected": 0.5,
        "differed": 0.5,
        "differed_explored": 0.5,
    }
    assert signal.note(8, []) == {}


def test_a_scenario_that_is_played_several_times_counts_at_each_place() -> None:
    signal = Signal(scenarios(1), seed=0)
    batch = signal.take(0, 8)
    numbers = signal.note(0, [group(s, differs=i == 3) for i, s in enumerate(batch)])
    found = numbers["explored"], numbers["differed"], numbers["differed_explored"]
    assert found == (0.25, 0, 0.5)


@pytest.mark.parametrize("num", [1, 2, 5, 40])
def test_there_may_be_fewer_scenarios_than_a_batch_takes(num: int) -> None:
    every = scenarios(num)
    batch = Signal(every, seed=0).take(24, 12)
    assert len(batch) == 12
    assert len({s.id for s in batch}) == min(num, 12)


def test_what_was_learned_goes_through_a_checkpoint() -> None:
    every = scenarios(40)
    one, other = Signal(every, seed=0), Signal(every, seed=0)
    play(one, 10, 8, {"train-1", "train-2"})
    other.load(json.loads(json.dumps(one.state())))
    assert other.take(80, 8) == one.take(80, 8)
    assert other.take(80, 8) != Signal(every, seed=0).take(80, 8)


OWN = """
import random
import art_cli


class Mine(art_cli.Sampler):
    def __init__(self, scenarios, seed):
        super().__init__(scenarios, seed)
        self.seen = 0

    def take(self, cursor, num):
        rng = random.Random(art_cli.seed_of(self.seed, cursor, self.seen))
        return rng.sample(self.scenarios, num)

    def note(self, cursor, groups):
        self.seen += len(groups)
        return {"seen": self.seen}

    def state(self):
        return self.seen

    def load(self, state):
        self.seen = state
"""


def own(folder: Path, before: str = "", after: str = "") -> str:
    file = folder / "mine.py"
    assert before in OWN
    file.write_text(OWN.replace(before, after, 1))
    return f"{file}:Mine"


def test_a_sampler_of_ones_own_chooses(tmp_path: Path) -> None:
    every, name = scenarios(20), own(tmp_path)
    try_sampler(name, every, seed=0, num=4)
    sampler = make_sampler(name, every, seed=0)
    batch = sampler.take(0, 4)
    assert len(batch) == 4 and all(s in every for s in batch)
    assert sampler.note(0, [group(s, differs=True) for s in batch]) == {"seen": 4.0}
    assert sampler.state() == 4


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("return rng.sample(self.scenarios, num)", "pass", "NoneType, expected a list of 4"),
        ("self.scenarios, num)", "self.scenarios, num - 1)", "returned 3 scenarios, expected 4"),
        ("rng.sample(self.scenarios, num)", "self.scenarios[:1] * num", "'train-0' twice"),
        ("rng.sample(self.scenarios, num)", "['x'] * num", "'x', which is no scenario"),
        ("rng.sample", "rng.simple", r"mine.py:13: AttributeError: .*simple"),
        ("self, cursor, num)", "self, num)", r"mine.py:11: TypeError"),
        ("self, scenarios, seed", "self", r"mine.py:7: TypeError"),
        ("self.seen += len(groups)", "1 / 0", "mine.py:16: ZeroDivisionError"),
        ('{"seen": self.seen}', "[1]", "list, expected numbers by name"),
        ('{"seen": self.seen}', '{"seen": float("nan")}', "nan for 'seen'; expected a finite"),
        ("return self.seen", "return {1, 2}", "cannot hold as JSON: .*set is not"),
        ("self.seen = state", "self.seen = state[0]", "mine.py:23: TypeError"),
        ("self.seen = state", "pass", r"chooses others after load\(state\(\)\)"),
        ("class Mine(art_cli.Sampler)", "class Mine", "no class that extends art_cli.Sampler"),
        ("class Mine", "class Other", "Mine"),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_place(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    name = own(tmp_path, before, after)
    with pytest.raises(UsageError, match=f"^train.curriculum: .*mine.py.*{told}"):
        try_sampler(name, scenarios(20), seed=0, num=4)
