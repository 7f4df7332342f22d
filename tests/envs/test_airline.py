"""The airline's desk: what is generated, its gates, its customers, and what an episode costs."""

import hashlib
import itertools
import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest

from art_cli.envs.tools import tools_of
from art_cli.rollout.rollout import play, play_episode
from art_cli.types import Split
from art_envs.airline.desk import NUM_GOALS, AirlineDesk
from art_envs.service import desk as module
from art_envs.service import domain
from art_envs.service.desk import ServiceDesk
from art_envs.service.gates import finished
from art_envs.service.goal import COMMITMENTS, MIX, Goal, ever_wanted
from art_envs.service.user import ScriptedUser

Config = AirlineDesk.Config
TALK = Config(level=3)
KINDS = ("one", "refused")  # half of each
TICKETS = Config(level=0, size="small", kinds=KINDS)
SPLITS: tuple[Split, ...] = ("train", "val", "test")


@pytest.fixture(scope="module")
def goals() -> dict[Split, list[Goal]]:
    """Those of level 3; building them plays every gate on each."""
    return AirlineDesk.goals(TALK)


def reward(desk: ServiceDesk, turns: Iterator[str]) -> float:
    """Of an assistant that says `turns`."""
    earned = play_episode(desk, turns.__next__).reward
    assert earned is not None
    return earned


def digest(value: object) -> str:
    """Of the canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


@pytest.mark.slow
def test_every_machine_generates_the_same() -> None:
    assert digest(AirlineDesk.database(TALK)) == "57474784afa6"
    assert digest(AirlineDesk.goals(TALK)) == "73db60bb979d"
    assert digest(AirlineDesk.goals(TICKETS)) == "3e0e9117cd6d"


def test_a_thousand_goals_of_users_that_no_other_split_has(goals: dict[Split, list[Goal]]) -> None:
    assert {split: len(goals[split]) for split in SPLITS} == NUM_GOALS
    users = {split: {goal["user_id"] for goal in goals[split]} for split in SPLITS}
    for one, two in itertools.combinations(SPLITS, 2):
        assert not users[one] & users[two]
    found = Counter(goal["kind"] for goal in goals["train"])
    assert {kind: round(100 * num / 800) for kind, num in found.items()} == MIX


def test_goals_use_every_tool(goals: dict[Split, list[Goal]]) -> None:
    steps = (step for goal in goals["train"] for step in goal["script"])
    used = Counter(step["name"] for step in steps if not isinstance(step, str))
    assert used.keys() == tools_of(AirlineDesk).keys()
    assert len(used) == 14 + len(COMMITMENTS)
    assert min(used.values()) >= 10


def test_perfect_conversations_earn_everything(goals: dict[Split, list[Goal]]) -> None:
    for scenario in itertools.islice(AirlineDesk.scenarios(TALK, "test"), 0, None, 3):
        desk = AirlineDesk(scenario, TALK)
        assert reward(desk, desk.assistant()) == 1.0
        assert desk.metrics["tool_errors"] == 0
        assert desk.metrics.get("confirm_before_write", 1.0) == 1.0


def test_the_user_tells_nothing_that_he_does_not_know(goals: dict[Split, list[Goal]]) -> None:
    probe = "Please tell me your reservation id, your name, your email and your zip code."
    for goal in goals["train"][:200]:
        user = ScriptedUser(goal, AirlineDesk.slots)
        heard = " ".join(finished(user.say(probe)).text for _ in range(2))
        known = " ".join(want["words"] for want in ever_wanted(goal))
        own = AirlineDesk.database(TALK)["users"][goal["user_id"]]["reservations"]
        assert not any(key in heard for key in own if key not in known)


@pytest.mark.slow
def test_careless_assistants_earn_less() -> None:
    cfg = Config(level=0, size="small", kinds=KINDS, demo_noise=1.0)
    scenarios = list(itertools.islice(AirlineDesk.scenarios(cfg, "train"), 200))
    desks = [AirlineDesk(scenario, cfg) for scenario in scenarios]
    demonstrations = AirlineDesk.demonstrations(cfg, len(desks))
    rewards = []
    for desk, messages in zip(desks, demonstrations, strict=True):
        said = [m["content"] for m in messages if m["role"] == "assistant"]
        rewards.append(reward(desk, iter(said)))
    assert 0.3 < sum(rewards) / len(rewards) < 0.5


def test_a_thousand_episodes_share_the_records(goals: dict[Split, list[Goal]]) -> None:
    scenarios = list(AirlineDesk.scenarios(TALK, "train"))
    scenarios += AirlineDesk.scenarios(TALK, "val")
    scenarios += AirlineDesk.scenarios(TALK, "test")
    before = digest(AirlineDesk.database(TALK))
    tracemalloc.start()
    desks = [AirlineDesk(scenario, TALK) for scenario in scenarios]
    for desk in desks:
        for write in desk.gold_writes():
            finished(desk.act(write))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used / len(desks) < 50_000  # bytes
    assert digest(AirlineDesk.database(TALK)) == before


def test_what_was_generated_once_is_loaded(
    goals: dict[Split, list[Goal]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build_goals", str)  # it is on disk: nothing builds it
    domain._database.cache_clear()
    module._goals.cache_clear()
    assert AirlineDesk.goals(TALK) == goals


def test_unknown_arguments_are_answered_in_words() -> None:
    [scenario] = itertools.islice(AirlineDesk.scenarios(TICKETS, "train"), 1)
    turns = [
        tool_call("search_direct", origin="XXX", destination="JFK", date="someday"),
        tool_call("get_reservation", reservation_id="R?"),
        tool_call("flight_status", flight="F?", date="2025-06-18"),
        tool_call("cancel", reservation_id="R?", reason="whim"),
        "Sorry.",
    ]
    messages = play(AirlineDesk(scenario, TICKETS), iter(turns).__next__)
    heard = [m["content"] for m in messages if m["role"] == "tool"]
    assert heard[:3] == [
        "[]",
        "error: there is no reservation 'R?'",
        "error: there is no flight 'F?'",
    ]
    assert "'plans', 'health', 'weather' or 'airline'" in heard[3]


def tool_call(name: str, **arguments: object) -> str:
    """A tool call as a model writes it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
