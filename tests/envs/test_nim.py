"""Nim: its rules, what each seat earns, and who can win."""

import asyncio
from itertools import islice
from typing import Literal

import pytest

from art_cli.rollout.rollout import play, play_episode
from art_cli.types import Scenario
from art_envs.nim import ANSWER, Nim

CFG = Nim.Config()
SEATS = ("first", "second")


def game(left: int, seat: str = "first", script: Literal["random", "perfect"] = "random") -> Nim:
    """A game with so many left, the first player's turn."""
    env = Nim(Scenario(id=f"x-{seat}", split="train", seed=1, data={"seat": seat}), CFG)
    env.cfg = Nim.Config(script=script)
    env.left = left
    return env


def after(env: Nim, *moves: str) -> Nim:
    """The game after these moves, of the seats in turn."""
    for text in moves:
        assert env.turn
        asyncio.run(env.move(env.turn, text))
    return env


def rewards(env: Nim) -> list[float]:
    """Of the first and of the second."""
    return [asyncio.run(env.reward(seat)) for seat in SEATS]


def test_who_takes_the_last_one_wins() -> None:
    env = after(game(6), "take 3", "take 2")
    assert (env.left, env.turn) == (1, "first")
    assert after(env, " take 1\n").turn is None
    assert rewards(env) == [1, 0]
    assert asyncio.run(env.metrics_of("first")) == {"success": 1, "illegal": 0}


@pytest.mark.parametrize(
    "text", ["take 0", "take 4", "take 3", "2", "take two", "take -1", "", "take 1 take 1"]
)
def test_a_move_against_the_rules_loses_and_the_other_wins(text: str) -> None:
    env = after(game(4), "take 2", text)  # two are left
    assert env.turn is None and rewards(env) == [1, -0.5]
    assert asyncio.run(env.metrics_of("second")) == {"success": 0, "illegal": 1}


def test_who_cannot_go_on_has_lost() -> None:
    assert rewards(after(game(9), "take 1")) == [1, 0]  # cut off in the second one's turn


def test_a_player_reads_what_is_left() -> None:
    env = game(9)
    assert asyncio.run(env.observe("first")) == "9 are left."
    assert asyncio.run(after(env, "take 2").observe("second")) == "7 are left."


def test_the_script_moves_by_the_rules_and_the_perfect_one_to_win() -> None:
    for left in range(1, 21):
        moves = {asyncio.run(game(left).script("first")) for _ in range(3)}
        assert moves <= {f"take {n}" for n in range(1, min(3, left) + 1)}
        best = asyncio.run(game(left, script="perfect").script("first"))
        if left % 4:
            assert best == f"take {left % 4}"


def test_gold_wins_from_the_seat_that_can_whatever_the_script() -> None:
    num = dict.fromkeys(SEATS, 0)
    for script in ("random", "perfect"):
        cfg = Nim.Config(script=script)
        for scenario in islice(Nim.scenarios(cfg, "val"), 150):
            env = Nim(scenario, cfg)
            gold = env.gold()
            assert (gold is None) == ((env.left % 4 == 0) == (env.seat == "first"))
            if gold:
                assert play_episode(env, gold.__next__).reward == 1
                num[env.seat] += 1
            elif script == "perfect":
                lost = play_episode(env, lambda env=env: f"take {min(2, env.left)}")
                assert lost.reward == 0
    assert min(num.values()) > 10


def test_demonstrations_are_legal_games_of_both_seats() -> None:
    found = list(Nim.demonstrations(CFG, 40))
    assert len(found) == 40
    for scenario, messages in zip(Nim.scenarios(CFG, "train"), found, strict=False):
        env = Nim(scenario, CFG)
        said = iter([m["content"] for m in messages if m["role"] == "assistant"])
        assert play(env, said.__next__) == messages
        assert env.illegal is None and env.winner


def test_heaps_are_those_of_the_settings() -> None:
    cfg = Nim.Config(smallest=5, largest=7)
    heaps = {Nim(s, cfg).left for s in islice(Nim.scenarios(cfg, "test"), 100)}
    assert heaps == {5, 6, 7}
    with pytest.raises(ValueError, match=r"smallest \(9\) is more than largest"):
        Nim.Config(smallest=9, largest=8)


def test_the_prompt_shows_a_legal_move() -> None:
    assert ANSWER.fullmatch(Nim.system.splitlines()[-1])
