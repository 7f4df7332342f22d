"""Tests of the env's promises. Write these first: training finds every mistake in a reward."""

import asyncio
from collections.abc import Callable

from env import GuessNumber

from art_cli import Scenario, Trajectory, play

CFG = GuessNumber.Config()


def episode(seed: int, answer: Callable[[GuessNumber], str]) -> tuple[GuessNumber, float]:
    """A played episode and its reward; `answer` makes the player's next answer from the env."""
    env = GuessNumber(Scenario(id="test", split="train", seed=seed), CFG)
    messages = play(env, lambda: answer(env))
    return env, asyncio.run(env.score(Trajectory(scenario=env.scenario, messages=messages)))


def test_halving_always_finds_it() -> None:
    rewards = [episode(seed, lambda env: str((env.low + env.high) // 2))[1] for seed in range(50)]
    assert rewards == [1.0] * 50


def test_nonsense_earns_nothing_and_breaks_nothing() -> None:
    for answer in ("", "I do not know", "-3", "1e9", "٣", "9" * 100):
        env, reward = episode(0, lambda _, answer=answer: answer)
        assert reward == 0.0 and not env.found


def test_careless_players_earn_less() -> None:
    rewards = [episode(seed, GuessNumber._careless_guess)[1] for seed in range(200)]
    assert 0.3 < sum(rewards) / len(rewards) < 0.8


def test_the_hints_are_true() -> None:
    env = GuessNumber(Scenario(id="test", split="train", seed=0), CFG)
    asyncio.run(env.start())
    env.secret = 5
    assert asyncio.run(env.reply("8")) == "lower: from 1 to 7."
    assert asyncio.run(env.reply("4")) == "higher: from 5 to 7."
    assert asyncio.run(env.reply("12")) == "no: from 5 to 7."


def test_the_same_seed_is_the_same_episode() -> None:
    secrets = [episode(seed, lambda _: "0")[0].secret for seed in (1, 1, 2, 3, 4)]
    assert secrets[0] == secrets[1] and len(set(secrets)) > 1
