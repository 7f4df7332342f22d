"""Games of several seats: who reads what, what each earns, and what a failure does to all."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from counting import Counting, Polite
from seats import SEATS, Players, Says, Script, scenario

from art_cli.chat.render import Renderer
from art_cli.engines.base import Session
from art_cli.envs.game import Game
from art_cli.errors import EngineError, LLMError
from art_cli.models.policy import Policy
from art_cli.rollout.agent import Agent, ContextFull
from art_cli.rollout.groups import play_groups
from art_cli.rollout.match import SeatedAgents, at_seat
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import play_episode, rollout
from art_cli.types import Message, Scenario, Trajectory, TrajectoryGroup

CFG = Counting.Config()


def match(
    own: Players, other: Players, env: type[Game] = Counting, seat: str = "left", **how: Any
) -> list[Trajectory]:
    """Play one game; return its trajectories, that of the seat itself first."""
    agents = SeatedAgents(policy=own, opponents=other, seats=SEATS, **how)
    agent = agents.open(5)
    played = asyncio.run(rollout(env, CFG, scenario(seat), agent))
    return [played, *agent.siblings(played)]


def said(t: Trajectory) -> list[str]:
    return [f"{m['role'][0]} {m['content']}" for m in t.messages]


def test_each_seat_has_a_conversation_of_its_own() -> None:
    own, other = Players(["one", "two"]), Players(["one", "one"])
    left, right = match(own, other, learns=True)
    assert said(left) == ["s You are left.", "u 0", "a one", "u 2 one", "a two"]
    assert said(right) == ["s You are right.", "u 1 one", "a one", "u 4 two", "a one"]
    assert [(s.turn, s.said, s.result) for s in left.steps] == [
        (0, "one", "2 one"),
        (1, "two", None),
    ]
    assert [s.result for s in right.steps] == ["4 two", None]
    assert own.agents[0].read == ["You are left.", "0", "2 one"]


@pytest.mark.parametrize(("seat", "rewards"), [("left", [0.0, 1.0]), ("right", [1.0, 0.0])])
def test_each_seat_earns_its_own_reward(seat: str, rewards: list[float]) -> None:
    """The right one says the last number, whichever of them the episode is about."""
    words: list[list[str | Exception]] = [["one", "two"], ["one", "one"]]
    mine = SEATS.index(seat)
    own, other = match(Players(words[mine]), Players(words[1 - mine]), seat=seat, learns=True)
    assert [own.reward, other.reward] == rewards
    for t in (own, other):
        here = t.scenario.data["seat"]
        by_seat = {f"reward_{here}": t.reward, f"success_{here}": t.reward}
        assert t.metrics == {"success": t.reward, "sum": 5} | by_seat
        assert t.judge_context == f"{here}: right won"
        assert t.scenario.id == f"train-0-{here}" and t.scenario.seed == 0


def test_opponents_that_do_not_learn_leave_no_trajectory_and_what_they_cost() -> None:
    own, other = Players(["one", "two"]), Players(["one", "one"])
    [left] = match(own, other)
    assert left.reward == 0 and left.usd == 0.25 * 4
    assert own.agents[0].closed == other.agents[0].closed == 1


def test_one_of_the_game_is_waited_for_at_a_time() -> None:
    own, other = Players(["one", "two"]), Players(["one", "one"])
    match(own, other, learns=True)
    assert own.agents[0].expected == [True, False, True, False]
    assert other.agents[0].expected == [False, True, False, True]


def test_each_seat_draws_from_a_seed_of_its_own() -> None:
    own, other = Players(["one", "two"]), Players(["one", "one"])
    match(own, other)
    assert own.seeds == [5] and other.seeds != [5]


def test_whoever_the_game_says_begins_after_set_up() -> None:
    own, other = Players(["two"]), Players(["two", "one"])
    left, right = match(own, other, Polite, learns=True)
    assert said(right)[:3] == ["s You are right.", "u 0", "a two"]
    assert said(left) == ["s You are left.", "u 2 two", "a two"]
    assert (left.reward, right.reward) == (0, 1)


def test_a_game_that_ends_before_a_seat_moved_is_in_its_group_without_a_token() -> None:
    left, right = match(Players(["three"]), Players([]), learns=True)
    assert (left.reward, right.reward, right.num_turns) == (0, 1, 0)
    assert said(right) == ["s You are right.", "u 0"] and right.sequences == []


def test_who_has_no_room_left_loses() -> None:
    left, right = match(Players(["one", ContextFull()]), Players(["one"]), learns=True)
    assert (left.stop_reason, right.stop_reason) == ("context", "env")
    assert (left.reward, right.reward) == (0, 1)


class Endless(Counting):
    max_turns = 2

    async def move(self, seat: str, text: str) -> None:
        self.turn = self.other(seat)


def test_turns_are_counted_for_each_seat() -> None:
    left, right = match(Players(["a"] * 9), Players(["b"] * 9), Endless, learns=True)
    assert left.num_turns == right.num_turns == 2
    assert left.stop_reason == right.stop_reason == "max_turns"
    assert said(left)[-1] == "u 0"  # it was its turn, and it had none left
    assert (left.reward, right.reward) == (0, 1)


class Breaks(Counting):
    broken = "move"

    async def move(self, seat: str, text: str) -> None:
        if seat == "right" and self.broken == "move":
            raise LookupError("broken")
        await super().move(seat, text)

    async def reward(self, seat: str) -> float:
        if seat == self.broken:
            raise LookupError("broken")
        return await super().reward(seat)

    async def set_up(self) -> None:
        if self.broken == "set_up":
            raise LookupError("broken")


class BreaksForLeft(Breaks):
    broken = "left"


class BreaksForRight(Breaks):
    broken = "right"


class NeverBegins(Breaks):
    broken = "set_up"


@pytest.mark.parametrize("env", [Breaks, BreaksForLeft, BreaksForRight, NeverBegins])
def test_a_game_that_fails_has_failed_for_both(env: type[Game]) -> None:
    env.closed = 0  # type: ignore[attr-defined]
    played = match(Players(["one", "two"]), Players(["one", "one"]), env, learns=True)
    assert [t.scenario.data["seat"] for t in played] == ["left", "right"]
    for t in played:
        assert t.failed and t.reward is None and t.stop_reason == "error"
        assert "LookupError: broken" in (t.error or "")
    assert env.closed == 1  # type: ignore[attr-defined]


def test_an_env_that_cannot_be_made_has_failed_for_both() -> None:
    class Unmade(Counting):
        def __init__(self, *args: Any) -> None:
            raise LookupError("broken")

    played = match(Players([]), Players([]), Unmade, learns=True)
    assert [t.failed for t in played] == [True, True]


def test_an_opponent_that_does_not_answer_is_no_bad_play() -> None:
    [left] = match(Players(["one"]), Players([LLMError("it is ill")]))
    assert left.failed and left.error == "it is ill"


def test_an_engine_that_fails_ends_more_than_the_game() -> None:
    with pytest.raises(EngineError):
        match(Players(["one"]), Players([EngineError("gone")]))


def test_a_turn_of_nobody_is_told() -> None:
    class Astray(Counting):
        async def move(self, seat: str, text: str) -> None:
            self.turn = "middle"

    [left] = match(Players(["one"]), Players([]), Astray)
    assert left.failed and "turn is 'middle', and there is no such seat" in (left.error or "")
    with pytest.raises(ValueError, match="turn is 'middle'"):
        play_episode(Astray(scenario("left"), CFG), lambda: "one")


class Slow(Counting):
    episode_timeout = 1.0

    async def move(self, seat: str, text: str) -> None:
        await asyncio.sleep(60)


class Thinks(Says):
    async def act(self, messages: list[Message]) -> str:
        await asyncio.sleep(0.8)
        return await super().act(messages)


class Patient(Counting):
    episode_timeout = 1.5


def test_the_games_deadline_counts_its_own_time_alone() -> None:
    [slow] = match(Players(["one"]), Players([]), Slow)
    assert slow.stop_reason == "timeout" and "move() did not return" in (slow.error or "")
    thinking = Players([])
    thinking.agents = [Thinks(["two", "two"])]
    [left] = match(thinking, Players(["one"]), Patient)
    assert (left.error, left.reward) == (None, 1)


def groups(own: Players, other: Players, num: int, **how: Any) -> list[tuple[int, TrajectoryGroup]]:
    async def play() -> list[tuple[int, TrajectoryGroup]]:
        agents = SeatedAgents(policy=own, opponents=other, seats=SEATS, **how)
        jobs: list[tuple[Scenario, list[Agent]]] = [
            (scenario("left", n), [agents.open(k) for k in range(num)]) for n in range(2)
        ]
        return [each async for each in play_groups(Counting, CFG, None, jobs)]

    return asyncio.run(play())


def test_games_give_a_group_for_each_seat() -> None:
    wins: list[str | Exception] = ["two", "two"]
    loses: list[str | Exception] = ["one", "one"]
    own = Players(wins, loses, loses, wins)
    other = Players(["one"], ["two", "two"], ["two", "two"], ["one"])
    found = groups(own, other, 2, learns=True)
    seats = [
        (n, [t.scenario.id for t in g.trajectories], g.rewards)
        for n, g in sorted(found, key=lambda f: f[0])
    ]
    assert seats == [
        (0, ["train-0-left"] * 2, [1, 0]),
        (0, ["train-0-right"] * 2, [0, 1]),
        (1, ["train-1-left"] * 2, [0, 1]),
        (1, ["train-1-right"] * 2, [1, 0]),
    ]


def test_only_the_seat_itself_is_a_group_where_the_opponents_do_not_learn() -> None:
    wins: list[str | Exception] = ["two", "two"]
    found = groups(Players(*[wins] * 4), Players(*[["one"]] * 4), 2)
    assert [g.rewards for _, g in found] == [[1, 1], [1, 1]]


def test_another_seat_of_the_same_game() -> None:
    other = at_seat(scenario("left", 4), "right")
    assert (other.id, other.seed, other.data) == ("train-4-right", 4, {"seat": "right"})


def test_what_is_trained_of_a_seat_is_what_was_sampled_at_it(
    make_policy: Callable[..., Policy],
) -> None:
    renderer = Renderer(make_policy().tokenizer, [])

    class Policies:
        words = iter((["one", "two"], ["two", "one"]))

        def open(self, seed: int) -> Agent:
            texts = next(self.words)
            session: Session = Script(renderer, texts)  # type: ignore[assignment]
            return PolicyAgent(renderer, lambda: session, 4096)

    both = Policies()
    agent = SeatedAgents(policy=both, opponents=both, seats=SEATS, learns=True).open(0)
    left = asyncio.run(rollout(Counting, CFG, scenario("left"), agent))
    [right] = agent.siblings(left)
    for t, words in ((left, ["one", "two"]), (right, ["two"])):
        [sequence] = t.sequences
        sampled = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
        assert sampled == [i for w in words for i in renderer.encode(w + renderer.end_of_turn)]
        assert [p == -1.0 for p in sequence.engine_logprobs] == [m == 1 for m in sequence.mask]
        assert t.num_calls == len(words)


# -- the same env as one of one player, against its script


def test_alone_a_seat_plays_against_the_script() -> None:
    seen = set()
    for seat in SEATS:
        for number in range(8):
            env = Counting(scenario(seat, number), CFG)
            t = play_episode(env, lambda: "one")
            assert said(t)[0] == f"s You are {seat}."
            assert (said(t)[1] == "u 0") == (seat == "left")
            assert t.reward == float(env.winner == seat)
            seen.add((seat, t.reward))
    assert len(seen) == 4


def test_every_game_is_a_scenario_of_each_seat() -> None:
    found = list(Counting.scenarios(CFG, "val"))
    assert [s.id for s in found[:3]] == ["val-0-left", "val-0-right", "val-1-left"]
    assert len(found) == 2 * Counting.num_scenarios["val"]
    assert len({s.seed for s in found}) == len(found) / 2


def test_scenarios_without_a_seat_say_what_to_override() -> None:
    with pytest.raises(
        ValueError, match=r"names none of the seats of Counting; override games\(\)"
    ):
        Counting(dataclasses.replace(scenario("left"), data={}), CFG)


def test_a_script_that_never_gives_the_turn_back_is_told() -> None:
    class Stays(Counting):
        async def move(self, seat: str, text: str) -> None:
            if seat == "left":
                self.turn = "right"

    with pytest.raises(RuntimeError, match=r"script\(\) of 'right' made 16 moves"):
        play_episode(Stays(scenario("left"), CFG), lambda: "one")
