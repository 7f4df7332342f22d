"""TextArena through the adapter: whose turn it is, what is said, and the game's own rewards."""

import random
from typing import Any

import pytest

from art_cli.rollout.rollout import play_episode
from art_cli.types import Scenario
from art_envs.adapters.textarena_env import ALONE, MOVES, TextArena

textarena = pytest.importorskip("textarena", reason="pip install 'art-cli[textarena]'")


def episode(seed: int = 0, **args: Any) -> TextArena:
    cfg = TextArena.Config(**args)
    return TextArena(Scenario(id="x", split="train", seed=seed), cfg)


def at_random(env: TextArena, seed: int = 0) -> Any:
    return play_episode(env, env._random_player(random.Random(seed)).__next__)


@pytest.mark.parametrize("game", sorted(MOVES))
def test_two_play_to_the_end_by_legal_moves_from_both_seats(game: str) -> None:
    seats, rewards = set(), []
    for seed in range(4):
        env = episode(seed, id=f"{game}-v0-short" if game == "PigDice" else f"{game}-v0")
        t = at_random(env, seed)
        seats.add(env.seat)
        rewards.append(t.reward)
        theirs, info = env.game.close()
        assert t.reward == theirs[env.seat] and theirs[0] == -theirs[1]
        assert t.metrics["finished"] == 1 and t.metrics["invalid_moves"] == 0
        assert not any(each["invalid_move"] for each in info.values())
        assert not any(f"[Player {env.seat}]" in m["content"] for m in t.messages[1:])
    assert seats == {0, 1} and set(rewards) <= {-1, 0, 1}


def test_the_one_who_wins_gets_1_and_the_one_who_loses_minus_1() -> None:
    env = episode(1, id="TicTacToe-v0")
    env.start()
    board = env.game.state.game_state["board"]
    mark = "OX"[env.seat]
    board[:] = [[mark, mark, ""], ["", "", ""], ["", "", ""]]
    env.reply("So I take [2].")
    assert env.score(None) == 1 and env.metrics["success"] == 1  # type: ignore[arg-type]


def test_two_invalid_moves_on_end_lose() -> None:
    t = play_episode(episode(id="TicTacToe-v0"), lambda: "[9]")
    assert (t.reward, t.num_turns, t.metrics["invalid_moves"]) == (-1, 2, 2)
    assert t.metrics["lost_by_invalid_move"] == 1 and "invalid move" in t.messages[3]["content"]


def test_a_game_that_is_not_finished_is_lost() -> None:
    t = at_random(episode(id="2048-v0", max_turns=3))
    assert (t.reward, t.metrics["finished"], t.num_turns) == (-1, 0, 3)


@pytest.mark.parametrize("game", sorted(ALONE))
def test_one_player_gets_the_games_reward(game: str) -> None:
    env = episode(3, id="2048-v0-ultra-easy" if game == "2048" else f"{game}-v0", max_turns=300)
    t = at_random(env)
    assert t.reward == env.game.close()[0][0] and 0 <= t.reward <= 1


def test_a_number_is_guessed() -> None:
    env = episode(id="GuessTheNumber-v0")
    env.start()
    env.reply(f"[{env.game.state.game_state['game_number']}]")
    assert env.score(None) == 1  # type: ignore[arg-type]


def test_the_same_seed_is_the_same_game_whatever_the_process_draws() -> None:
    before = random.getstate()
    one = at_random(episode(5, id="KuhnPoker-v0"))
    assert random.getstate() == before
    random.seed(9)
    two = at_random(episode(5, id="KuhnPoker-v0"))
    assert one.messages == two.messages
    assert one.messages != at_random(episode(6, id="KuhnPoker-v0")).messages


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"id": "TicTacToe-v9"}, "no game 'TicTacToe-v9'; `art envs tasks textarena`"),
        ({"id": "SecretMafia-v0"}, "a game of several"),
        ({"id": "Stratego-v0"}, "against random moves Chopsticks, ConnectFour"),
        ({"id": "TicTacToe-v0", "kwargs": {"size": 4}}, "cannot make TicTacToe-v0 here.*size"),
    ],
)
def test_a_game_that_cannot_be_played_says_why(args: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TextArena.Config(**args)


def test_the_list_has_games_of_one_and_of_two() -> None:
    found = TextArena.task_list()
    assert found["id=Mastermind-v0"] == "one player"
    assert found["id=Nim-v0"] == "against random moves"
    assert len(found) > 90 and "id=Stratego-v0" not in found
