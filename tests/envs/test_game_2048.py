"""2048: how the board moves, when it ends, and what it earns under each of the rules."""

import asyncio
import math
import random
from itertools import islice
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from art_cli.envs.base import Done
from art_cli.rollout.rollout import play
from art_cli.types import Scenario, Trajectory
from art_envs.game_2048 import MOVES, Board, Game2048, legal_moves, render, slide

CFG = Game2048.Config()
TINY = Game2048.Config(size=3, goal=32, rules="lenient", max_moves=24)

# No two neighbours are equal and no cell is empty: nothing moves.
STUCK = [[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 4, 2]]
# Full, but the last row can merge.
FULL = [*STUCK[:3], [8, 8, 16, 32]]
# Only a move to the right changes it.
CORNERED = [[2, 0, 0, 0], [4, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]]


def game(board: Board | None = None, seed: int = 0, **settings: Any) -> Game2048:
    """An episode, on a board where one is given."""
    scenario = Scenario(id="x", split="train", seed=seed)
    env = Game2048(scenario, Game2048.Config(**settings))
    env.board = board or env.board
    return env


def answer(env: Game2048, text: str) -> str | Done:
    """The env's reply; a bare direction is put into XML."""
    return asyncio.run(env.reply(f"<move>{text}</move>" if text in MOVES else text))


def reward(env: Game2048) -> float:
    """Of the episode as it stands."""
    return asyncio.run(env.score(Trajectory(scenario=env.scenario)))


@pytest.mark.parametrize(
    ("row", "left", "right"),
    [
        ([0, 0, 0, 2], [2, 0, 0, 0], [0, 0, 0, 2]),
        ([2, 0, 0, 2], [4, 0, 0, 0], [0, 0, 0, 4]),
        ([2, 2, 2, 2], [4, 4, 0, 0], [0, 0, 4, 4]),
        ([2, 2, 2, 0], [4, 2, 0, 0], [0, 0, 2, 4]),
        ([4, 2, 2, 0], [4, 4, 0, 0], [0, 0, 4, 4]),
        ([2, 2, 4, 8], [4, 4, 8, 0], [0, 4, 4, 8]),
        ([4, 0, 2, 4], [4, 2, 4, 0], [0, 4, 2, 4]),
        ([2, 4, 2, 4], [2, 4, 2, 4], [2, 4, 2, 4]),
    ],
)
def test_a_row_slides_and_each_tile_merges_once(
    row: list[int], left: list[int], right: list[int]
) -> None:
    column, up, down = ([[tile] for tile in tiles] for tiles in (row, left, right))
    assert slide([row], "left") == [left]
    assert slide([row], "right") == [right]
    assert slide(column, "up") == up
    assert slide(column, "down") == down


def test_legal_moves_change_the_board() -> None:
    assert legal_moves(STUCK) == []
    assert legal_moves(FULL) == ["left", "right"]
    assert legal_moves(CORNERED) == ["right"]


def test_the_board_is_drawn_as_the_reference_does() -> None:
    assert render([[0, 2, 0], [16, 0, 4], [0, 0, 128]]) == "  _|  2|  _\n 16|  _|  4\n  _|  _|128\n"


def test_the_opening_has_two_small_tiles() -> None:
    for seed in range(50):
        tiles = sorted(tile for row in game(seed=seed).board for tile in row)
        assert tiles[:14] == [0] * 14
        assert set(tiles[14:]) <= {2, 4}


def test_one_spawned_tile_in_ten_is_a_four() -> None:
    tiles = [tile for seed in range(300) for row in game(seed=seed).board for tile in row if tile]
    assert 0.07 < tiles.count(4) / len(tiles) < 0.13


def test_a_move_slides_and_adds_one_tile() -> None:
    env = game(CORNERED)
    assert answer(env, "right") == render(env.board)
    assert [row[3] for row in env.board] == [2, 4, 2, 4]
    assert sum(tile > 0 for row in env.board for tile in row) == 5


@pytest.mark.parametrize("text", ["<move>left</move>", "\n<move> left </move>\n", "<m>left</m>"])
def test_answers_that_are_moves(text: str) -> None:
    assert isinstance(answer(game([[0, 0, 0, 2], *CORNERED[1:]]), text), str)


@pytest.mark.parametrize(
    "text",
    ["", "left.", "I go <move>left</move>", "<move>west</move>", "<move>left", "<a>left</b>"],
)
def test_answers_that_are_not_lose(text: str) -> None:
    env = game([[0, 0, 0, 2], *CORNERED[1:]], rules="lenient")
    assert isinstance(answer(env, text), Done)
    assert reward(env) == -1
    assert env.metrics["invalid"] == 1


def test_a_move_without_effect_is_invalid() -> None:
    env = game(CORNERED)
    assert isinstance(answer(env, "left"), Done)
    assert reward(env) == -1


def test_lenient_rules_show_the_same_board_again() -> None:
    env = game(CORNERED, rules="lenient")
    assert answer(env, "left") == render(CORNERED)
    assert reward(env) > 0
    assert (env.metrics["num_noops"], env.metrics["num_moves"]) == (1, 0)


def test_reference_rules_add_a_tile_all_the_same() -> None:
    env = game(CORNERED, rules="reference")
    assert answer(env, "left") == render(env.board)
    assert sum(tile > 0 for row in env.board for tile in row) == 5
    assert reward(env) > 0


def test_the_game_ends_when_no_move_exists() -> None:
    # A move to the left merges the last row; the new tile fills the board and blocks it.
    board = [[2, 4, 8, 16], [4, 8, 16, 32], [8, 16, 32, 64], [8, 8, 64, 16]]
    env = game(board)
    answered = answer(env, "left")
    assert isinstance(answered, Done) == (legal_moves(env.board) == [])
    assert isinstance(answered, Done)


def test_a_full_board_with_a_merge_ends_the_game_by_reference_rules_only() -> None:
    board = [[2, 4, 8, 16], [2, 8, 16, 32], [8, 16, 32, 64], [8, 8, 64, 16]]
    assert isinstance(answer(game(board), "left"), str)
    assert isinstance(answer(game(board, rules="reference"), "left"), Done)


def test_the_goal_wins() -> None:
    env = game([[64, 64, 0, 0], *CORNERED[1:]])
    assert isinstance(answer(env, "left"), Done)
    assert reward(env) == 2
    assert env.metrics["success"] == env.metrics["win"] == 1
    assert env.metrics["max_value"] == 128


def test_reward_is_the_references_formula() -> None:
    env = game([[64, 32, 16, 8], [8, 0, 0, 0], [0] * 4, [0] * 4])
    assert reward(env) == pytest.approx(5 / 6 + 0.2 * 6 / 10)  # max 64, sum 128
    small = game([[16, 8, 4], [4, 0, 0], [0] * 3], size=3, goal=32)
    assert reward(small) == pytest.approx(3 / 4 + 0.2 * 4 / (math.log2(32 * 9) - 1))


def test_siblings_that_play_the_same_see_the_same() -> None:
    one, two, other = game(seed=5), game(seed=5), game(seed=6)
    assert one.board == two.board
    assert one.board is not two.board
    rng = random.Random(0)
    for _ in range(20):
        move = rng.choice(legal_moves(one.board))
        assert answer(one, move) == answer(two, move)
    assert one.board == two.board != other.board


def test_a_refused_move_does_not_change_the_luck() -> None:
    one, two = game(CORNERED, rules="lenient"), game(CORNERED, rules="lenient")
    answer(one, "left")
    assert answer(one, "right") == answer(two, "right")


def test_splits_share_no_seed() -> None:
    seeds = [s.seed for split in ("train", "val", "test") for s in Game2048.scenarios(CFG, split)]
    assert len(set(seeds)) == len(seeds) == 4096 + 512 + 512


def test_the_length_is_a_setting() -> None:
    env = game(max_moves=3)
    messages = play(env, env._noisy_player(random.Random(0)).__next__)
    assert sum(m["role"] == "assistant" for m in messages) == 3
    assert 0 < reward(env) < 1


@pytest.mark.parametrize(
    "settings", [{"goal": 100}, {"size": 1}, {"rules": "mine"}, {"max_moves": 0}, {"demo_noise": 2}]
)
def test_settings_have_ranges(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Game2048.Config).validate_python(settings)


@pytest.mark.parametrize(
    ("cfg", "low", "high"), [(CFG, 1.4, 1.9), (TINY, 1.1, 1.6), (Game2048.Config(size=3), 0.4, 0.9)]
)
def test_demonstrations_are_legal_and_mediocre(
    cfg: Game2048.Config, low: float, high: float
) -> None:
    rewards = []
    num = 40
    demonstrations = Game2048.demonstrations(cfg, num)
    for scenario, messages in zip(Game2048.scenarios(cfg, "train"), demonstrations, strict=False):
        env = Game2048(scenario, cfg)
        said = iter([m["content"] for m in messages if m["role"] == "assistant"])
        assert play(env, said.__next__) == messages
        rewards.append(reward(env))
        assert not env.invalid
        assert env.num_noops == 0
    assert len(rewards) == num
    assert low < sum(rewards) / num < high


def test_random_directions_score_below_demonstrations() -> None:
    rng = random.Random(0)
    rewards = []
    for scenario in islice(Game2048.scenarios(CFG, "val"), 60):
        env = Game2048(scenario, CFG)
        play(env, lambda: f"<move>{rng.choice(MOVES)}</move>")
        rewards.append(reward(env))
    assert sum(rewards) / len(rewards) < -0.5  # a no-op loses
