"""TextArena through the adapter: whose turn it is, what is said, and the game's own rewards."""

import asyncio
import random
from typing import Any

import pytest

from art_cli.config.sections.env import OpponentsConfig
from art_cli.errors import UsageError
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.match import SeatedAgents
from art_cli.rollout.opponents import check_opponents
from art_cli.rollout.rollout import play_episode, rollout
from art_cli.types import Message, Scenario, Trajectory
from art_envs.adapters.textarena_env import ALONE, MOVES, TextArena

textarena = pytest.importorskip("textarena", reason="pip install 'art-cli[textarena]'")


def episode(seed: int = 0, player: int = 0, **args: Any) -> TextArena:
    cfg = TextArena.Config(**args)
    data = {"seat": f"player{player}"}
    return TextArena(Scenario(id=f"x-player{player}", split="train", seed=seed, data=data), cfg)


def at_random(env: TextArena, seed: int = 0) -> Any:
    return play_episode(env, env._random_player(random.Random(seed)).__next__)


@pytest.mark.parametrize("game", sorted(MOVES))
def test_two_play_to_the_end_by_legal_moves_from_both_seats(game: str) -> None:
    seats, rewards = set(), []
    for seed in range(4):
        player = seed % 2
        env = episode(seed, player, id=f"{game}-v0-short" if game == "PigDice" else f"{game}-v0")
        t = at_random(env, seed)
        seats.add(env.seat)
        rewards.append(t.reward)
        theirs, info = env.game.close()
        assert t.reward == theirs[player] and theirs[0] == -theirs[1]
        assert t.metrics["finished"] == 1 and t.metrics["invalid_moves"] == 0
        assert not any(each["invalid_move"] for each in info.values())
        assert not any(f"[Player {player}]" in m["content"] for m in t.messages[1:])
    assert seats == {"player0", "player1"} and set(rewards) <= {-1, 0, 1}


def test_the_one_who_wins_gets_1_and_the_one_who_loses_minus_1() -> None:
    async def go() -> TextArena:
        env = episode(1, id="TicTacToe-v0")
        await env.start()
        board = env.game.state.game_state["board"]
        board[:] = [["O", "O", ""], ["", "", ""], ["", "", ""]]
        await env.reply("So I take [2].")
        return env

    env = asyncio.run(go())
    assert asyncio.run(env.reward("player1")) == -1
    assert asyncio.run(env.score(Trajectory(scenario=env.scenario))) == 1
    assert env.metrics["success"] == env.metrics["success_player0"] == 1


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
    t = play_episode(env, lambda: f"[{env.game.state.game_state['game_number']}]")
    assert t.reward == 1 and "success_player0" not in t.metrics


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
        ({"id": "SecretMafia-v0"}, "a game of more than two"),
        ({"id": "TicTacToe-v0", "kwargs": {"size": 4}}, "cannot make TicTacToe-v0 here.*size"),
    ],
)
def test_a_game_that_cannot_be_played_says_why(args: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TextArena.Config(**args)


def test_the_list_has_games_of_one_and_of_two() -> None:
    found = TextArena.task_list()
    assert found["id=Mastermind-v0"] == "one player"
    assert found["id=Nim-v0"] == "two players"
    assert found["id=Stratego-v0"] == "two players, opponents named"
    assert len(found) > 140 and "id=SecretMafia-v0" not in found


def test_a_game_whose_moves_nobody_knows_needs_an_opponent() -> None:
    cfg = TextArena.Config(id="Stratego-v0")
    with pytest.raises(UsageError, match=r"env.opponents.train: TextArena has no script\(\)"):
        check_opponents(None, TextArena, cfg)
    with pytest.raises(UsageError, match=r"env\.opponents\.eval=start"):
        check_opponents(OpponentsConfig(), TextArena, cfg)
    check_opponents(OpponentsConfig(eval="start"), TextArena, cfg)
    check_opponents(None, TextArena, TextArena.Config(id="TicTacToe-v0"))


class Says(TurnAgent):
    """Says given words, and remembers what it reads."""

    def __init__(self, *words: str) -> None:
        self.words, self.read = iter(words), ""

    async def act(self, messages: list[Message]) -> str:
        self.read += "\n".join(m["content"] for m in messages)
        return next(self.words)

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0] * trajectory.num_turns


class Players:
    """An AgentFactory of one agent."""

    def __init__(self, agent: Says) -> None:
        self.agent = agent

    def open(self, seed: int) -> Says:
        return self.agent


def test_two_players_play_each_other_and_each_gets_the_games_reward() -> None:
    first, second = Says("[0]", "[1]", "[2]"), Says("[3]", "[9]", "[4]")
    agents = SeatedAgents(
        policy=Players(second),
        opponents=Players(first),
        seats=("player0", "player1"),
        learns=True,
    )
    env = episode(player=1, id="TicTacToe-v0")
    agent = agents.open(0)
    mine = asyncio.run(rollout(TextArena, env.cfg, env.scenario, agent))
    [theirs] = agent.siblings(mine)
    assert (mine.error, mine.reward, theirs.reward) == (None, -1, 1)
    assert mine.metrics["invalid_moves"] == 1 and mine.metrics["success_player1"] == 0
    assert theirs.metrics["invalid_moves"] == 0 and theirs.metrics["success_player0"] == 1
    assert "You are Player 1" in second.read and "[Player 0] [1]" in second.read
    assert "[Player 1] [3]" in first.read and "[Player 0]" not in first.read
    assert "invalid move" in second.read and "invalid move" not in first.read
