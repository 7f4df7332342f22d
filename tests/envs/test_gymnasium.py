"""Gymnasium through the adapter: what is seen, what is done, and what a return is worth."""

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from art_cli.preflight.envs.players import call_text
from art_cli.rollout.rollout import play_episode
from art_cli.types import Trajectory
from art_envs.adapters.gymnasium_env import Gymnasium

gym = pytest.importorskip("gymnasium", reason="pip install 'art-cli[gymnasium]'")

LAKE = {"id": "FrozenLake-v1", "kwargs": {"is_slippery": False, "map_name": "4x4"}}
FOUND = ["down", "down", "right", "right", "down", "right"]  # the way over that map
ROUND_THE_CLIFF = ["up", *["right"] * 11, "down"]


def episode(number: int = 0, split: Any = "val", **args: Any) -> Gymnasium:
    cfg = Gymnasium.Config(**args)
    return Gymnasium(next(islice(Gymnasium.scenarios(cfg, split), number, None)), cfg)


def acts(*actions: str) -> Callable[[], str]:
    return iter([call_text("act", {"action": a}) for a in actions]).__next__


def test_a_world_is_seen_and_walked_through() -> None:
    t = play_episode(episode(**LAKE), acts(*FOUND))
    assert [m["content"] for m in t.messages if m["role"] != "assistant"][1:3] == [
        "P F F F\nF H F H\nF F F H\nH F F G",
        "S F F F\nP H F H\nF F F H\nH F F G",
    ]
    assert (t.reward, t.metrics["success"], t.metrics["steps"]) == (1, 1, 6)
    assert t.tools[0]["function"]["parameters"]["properties"]["action"]["enum"] == [
        *("left", "down", "right", "up")
    ]


def test_a_fall_into_a_hole_is_worth_nothing() -> None:
    t = play_episode(episode(**LAKE), acts("right", "down"))
    assert (t.reward, t.metrics["success"], t.stop_reason) == (0, 0, "env")


@pytest.mark.parametrize(
    ("actions", "reward"),
    [
        (ROUND_THE_CLIFF, 1.0),  # a return of -13, where idling through 50 steps is -50
        (["left", *ROUND_THE_CLIFF], (50 - 14) / (50 - 13)),
        (["up"] * 50, 0.0),
        (["right", *ROUND_THE_CLIFF], 0.0),  # off the cliff once: -113
        ([*ROUND_THE_CLIFF[:-1], "up", *["left"] * 38], 0.0),  # not played to its end
    ],
)
def test_a_return_is_worth_what_it_is_between_idle_and_best(
    actions: list[str], reward: float
) -> None:
    t = play_episode(episode(id="CliffWalking-v1"), acts(*actions))
    assert t.reward == pytest.approx(reward)


@pytest.mark.parametrize("id", ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"])
def test_gold_earns_1_and_the_return_is_the_librarys(id: str) -> None:
    kwargs = {"is_slippery": False} if id == "FrozenLake-v1" else {}
    for number in range(4):
        env = episode(number, id=id, kwargs=kwargs)
        turns = env.gold()
        assert turns is not None
        t = play_episode(env, turns.__next__)
        desc = {"desc": env.env.unwrapped.desc.tolist()} if id == "FrozenLake-v1" else {}
        theirs = gym.make(id, **kwargs, **desc)
        theirs.reset(seed=env.scenario.seed)
        done = [env.actions.index(step.arguments["action"]) for step in t.steps]
        assert t.metrics["return"] == sum(theirs.step(a)[1] for a in done)
        assert (t.reward, t.metrics["success"]) == (1, 1)


def test_blackjack_pays_1_half_and_0() -> None:
    worth = {1.0: 1.0, 0.0: 0.5, -1.0: 0.0}
    seen = set()
    for number in range(30):
        t = play_episode(episode(number, id="Blackjack-v1"), acts("stick"))
        assert t.reward == worth[t.metrics["return"]]
        assert t.metrics["success"] == (t.metrics["return"] == 1)
        seen.add(t.reward)
    assert seen == {0, 0.5, 1}
    assert episode(id="Blackjack-v1").gold() is None


def test_invalid_actions_are_counted_and_cost_a_step() -> None:
    def turns() -> Iterator[str]:
        yield "I go up."
        yield call_text("act", {"action": "fly"})
        yield from (call_text("act", {"action": a}) for a in ROUND_THE_CLIFF)

    t = play_episode(episode(id="CliffWalking-v1"), turns().__next__)
    assert t.metrics["invalid_actions"] == 2
    assert t.reward == pytest.approx((50 - 15) / (50 - 13))
    assert "action must be one of up, right, down, left" in t.messages[5]["content"]


@pytest.mark.parametrize("text", ["no", call_text("act", {"action": "up", "far": 1})])
def test_three_invalid_actions_end_it_for_nothing(text: str) -> None:
    t = play_episode(episode(id="Blackjack-v1"), lambda: text)
    assert (t.reward, t.num_turns, t.stop_reason) == (0, 3, "env")


def test_maps_of_the_lake_differ_and_are_those_of_the_seed() -> None:
    views = [episode(i, id="FrozenLake-v1").start()[1]["content"] for i in range(20)]
    assert len(set(views)) > 15
    assert views[0] == episode(0, id="FrozenLake-v1").start()[1]["content"]
    assert episode(0, id="FrozenLake8x8-v1").start()[1]["content"].count("\n") == 7
    assert "slippery" in episode(id="FrozenLake-v1").start()[0]["content"]
    assert episode(id="FrozenLake-v1").gold() is None  # chance decides


def test_taxi_is_told_in_words() -> None:
    view = episode(id="Taxi-v4").start()[1]["content"]
    assert "\x1b" not in view and view.count("T") == 1
    assert "passenger: at " in view and "destination: " in view


def test_any_world_of_discrete_actions_is_played_where_its_return_is_known() -> None:
    cfg = {"id": "CartPole-v1", "returns": [0, 10], "max_steps": 10}
    rng = random.Random(0)
    t = play_episode(episode(**cfg), lambda: call_text("act", {"action": rng.choice(["0", "1"])}))
    assert t.reward == 1 and t.metrics["return"] == 10
    assert len(t.messages[1]["content"].split()) == 4


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"id": "FrozenLake-v9"}, "FrozenLake"),
        ({"id": "Nothing-v0"}, "Nothing.*`art envs tasks gymnasium` lists"),
        ({"id": "Ant-v5", "returns": [0, 1]}, "(?i)mujoco is not installed|its actions are Box"),
        ({"id": "CartPole-v1"}, r"returns: \[LOW, HIGH\]"),
        ({"id": "CartPole-v1", "returns": [1, 1]}, "the first must be less"),
        ({"id": "Pendulum-v1", "returns": [0, 1]}, "its actions are Box"),
        ({"id": "Taxi-v4", "kwargs": {"is_wet": True}}, "is_wet"),
    ],
)
def test_a_wrong_setting_says_what_is_wrong(args: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Gymnasium.Config(**args)


def test_the_list_has_what_can_be_played() -> None:
    found = Gymnasium.task_list()
    assert {"id=FrozenLake-v1", "id=Taxi-v4", "id=Blackjack-v1", "id=CartPole-v1"} <= set(found)
    assert "id=Pendulum-v1" not in found


def test_siblings_that_do_the_same_see_the_same() -> None:
    def views(env: Gymnasium) -> Trajectory:
        rng = random.Random(1)
        return play_episode(env, lambda: call_text("act", {"action": rng.choice(env.actions)}))

    one, two = (views(episode(0, id="FrozenLake-v1")) for _ in range(2))
    assert one.messages == two.messages and len(one.messages) > 3
