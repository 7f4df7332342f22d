"""Tic-tac-toe: its rules and rewards, and how strong its opponents are."""

import asyncio
import random
from collections.abc import Iterator
from itertools import islice
from typing import Literal

import pytest

from art_cli.envs.base import Done
from art_cli.rollout.rollout import play
from art_cli.types import Scenario, Trajectory
from art_envs.tic_tac_toe import (
    ANSWER,
    TicTacToe,
    best_cells,
    free_cells,
    has_won,
    mark,
    render,
    value,
)

CFG = TicTacToe.Config()
Opponent = Literal["random", "mixed", "perfect"]


def game(board: str, opponent: Opponent = "perfect", seed: int = 0) -> TicTacToe:
    """An episode in which x is to move on this board."""
    cfg = TicTacToe.Config(opponent=opponent)
    env = TicTacToe(Scenario(id="x", split="train", seed=seed), cfg)
    env.board = board
    return env


def move(env: TicTacToe, cell: int) -> str | Done:
    """The env's reply to a move."""
    return asyncio.run(env.reply(f"<move> {cell}</move>"))


def reward(env: TicTacToe) -> float:
    """Of the episode as it stands."""
    return asyncio.run(env.score(Trajectory(scenario=env.scenario)))


def mean_reward(opponent: Opponent, noise: float, num: int = 150) -> float:
    """Of demonstrations with this share of random moves, played again."""
    cfg = TicTacToe.Config(opponent=opponent, demo_noise=noise)
    rewards = []
    demonstrations = TicTacToe.demonstrations(cfg, num)
    for scenario, messages in zip(TicTacToe.scenarios(cfg, "train"), demonstrations, strict=False):
        env = TicTacToe(scenario, cfg)
        said = iter([m["content"] for m in messages if m["role"] == "assistant"])
        assert play(env, said.__next__) == messages
        rewards.append(reward(env))
        assert not env.metrics["illegal"]
    assert len(rewards) == num
    return sum(rewards) / num


def test_every_line_shows_the_numbers_of_its_free_cells() -> None:
    rows, columns = [" x 2 3", " 4 o 6", " 7 8 x"], [" x 4 7", " 2 o 8", " 3 6 x"]
    assert render("x___o___x").split("\n") == [*rows, *columns, " x o x", " 3 o 7"]


@pytest.mark.parametrize("line", ["012", "345", "678", "036", "147", "258", "048", "246"])
def test_three_in_a_line_win(line: str) -> None:
    board = "".join("x" if str(i) in line else "_" for i in range(9))
    assert has_won(board, "x")
    assert not has_won(board, "o")
    assert not has_won(board.replace("x", "o", 1), "x")


def test_a_line_of_x_wins() -> None:
    env = game("xx_oo____")
    assert isinstance(move(env, 3), Done)
    assert reward(env) == 1
    assert env.metrics == {"success": 1, "win": 1, "draw": 0, "illegal": 0}


def test_an_open_line_of_o_loses() -> None:
    env = game("oo_xx____")
    assert isinstance(move(env, 9), Done)
    assert reward(env) == 0
    assert has_won(env.board, "o")


@pytest.mark.parametrize("board", ["oxoxxoxo_", "xoxooxo__"])
def test_a_full_board_without_a_line_is_a_draw(board: str) -> None:
    env = game(board)
    assert isinstance(move(env, board.index("_") + 1), Done)
    assert reward(env) == 0.5
    assert env.metrics["draw"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "<move> 1</move>",
        "<move> 0</move>",
        "<move> 10</move>",
        "9",
        "<move> 2</move> <move> 9</move>",
    ],
)
def test_an_illegal_move_ends_the_game(text: str) -> None:
    env = game("x___o____")
    assert isinstance(asyncio.run(env.reply(text)), Done)
    assert reward(env) == -0.2
    assert env.metrics["illegal"] == 1


@pytest.mark.parametrize(
    "text", ["<move>9</move>", "x - o 9 <move> 9</move>", " <move>\n9 </move>\n"]
)
def test_spaces_and_what_was_thought_do_not_matter(text: str) -> None:
    env = game("x___o____")
    assert isinstance(asyncio.run(env.reply(text)), str)
    assert env.board[8] == "x"


def test_a_game_that_was_cut_off_earns_nothing() -> None:
    assert reward(game("x___o____")) == 0


def test_the_perfect_opponent_never_loses() -> None:
    """Against every line of play, from both beginnings, and whichever best move it takes."""

    def outcomes(board: str) -> Iterator[str]:
        """All ends that are reached when x is to move."""
        for cell in free_cells(board):
            after = mark(board, cell, "x")
            if has_won(after, "x") or not free_cells(after):
                yield after
                continue
            for reply in best_cells(after, "o"):
                answered = mark(after, reply, "o")
                if has_won(answered, "o") or not free_cells(answered):
                    yield answered
                else:
                    yield from outcomes(answered)

    openings = ["_________", *(mark("_________", c, "o") for c in best_cells("_________", "o"))]
    assert not any(has_won(end, "x") for board in openings for end in outcomes(board))


def test_perfect_play_draws() -> None:
    assert value("_________", "x") == value("_________", "o") == 0
    assert best_cells("xx_oo____", "x") == [2]
    assert best_cells("xx__o____", "o") == [2]


def test_opponents_differ_in_strength() -> None:
    by_chance = [mean_reward(opponent, 1.0) for opponent in ("random", "mixed", "perfect")]
    assert 0.4 < by_chance[0] < 0.6
    assert by_chance[0] > by_chance[1] + 0.1 > by_chance[2] + 0.15
    assert mean_reward("perfect", 0.0) == 0.5
    assert mean_reward("random", 0.0) > 0.9


def test_the_opponent_begins_in_half_of_the_scenarios() -> None:
    scenarios = list(TicTacToe.scenarios(CFG, "val"))
    num_begun = sum("o" in TicTacToe(s, CFG).board for s in scenarios)
    assert 0.42 < num_begun / len(scenarios) < 0.58


def test_splits_share_no_seed() -> None:
    seeds = [s.seed for split in ("train", "val", "test") for s in TicTacToe.scenarios(CFG, split)]
    assert len(set(seeds)) == len(seeds) == 4096 + 512 + 512


def play_randomly(env: TicTacToe, seed: int) -> list[str]:
    """What a player of random cells, legal or not, reads."""
    rng = random.Random(seed)
    messages = play(env, lambda: f"<move> {rng.randint(1, 9)}</move>")
    return [m["content"] for m in messages]


def test_siblings_that_play_the_same_see_the_same() -> None:
    for scenario in islice(TicTacToe.scenarios(CFG, "train"), 50):
        one, two = TicTacToe(scenario, CFG), TicTacToe(scenario, CFG)
        assert play_randomly(one, 1) == play_randomly(two, 1)


def test_random_cells_earn_little() -> None:
    rewards = []
    for i, scenario in enumerate(TicTacToe.scenarios(CFG, "val")):
        env = TicTacToe(scenario, CFG)
        play_randomly(env, i)
        rewards.append(reward(env))
    assert sum(rewards) / len(rewards) < 0.1


def test_the_prompt_shows_a_legal_move() -> None:
    assert ANSWER.fullmatch(TicTacToe.system.splitlines()[-1])
