"""Agents of one's own at the seats of a game: against others, and against themselves."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from counting import Hidden, call, plays
from hosted import ROOM, ScriptEngine
from seats import SEATS, Players, scenario

from art_cli.chat.render import Renderer
from art_cli.config.sections.reward import RewardConfig
from art_cli.envs.base import tool
from art_cli.envs.game import Game
from art_cli.errors import LLMError
from art_cli.models.policy import Policy
from art_cli.rollout.agent import Agent, AgentFactory
from art_cli.rollout.agents.function import FunctionRunner
from art_cli.rollout.agents.hosted import HostedAgents
from art_cli.rollout.gateway.served import Served
from art_cli.rollout.gateway.server import Gateway
from art_cli.rollout.groups import play_groups
from art_cli.rollout.match import SeatedAgents
from art_cli.types import Scenario, Trajectory

LOOK = call("look")
Play = Callable[..., list[list[Trajectory]]]


@pytest.fixture
def play(make_policy: Callable[..., Policy]) -> Play:
    """Play games of an agent function; the policy says the texts. Groups of trajectories."""
    policy = make_policy()

    async def go(
        texts: list[Any],
        others: AgentFactory | None,
        env: type[Game],
        function: Any,
        seat: str,
        num: int,
        cfg: Any,
        reward: RewardConfig | None,
        **how: Any,
    ) -> list[list[Trajectory]]:
        renderer = Renderer(policy.tokenizer)
        engine: Any = ScriptEngine(renderer, texts)
        gateway = Gateway(Served(engine, partial(Renderer, policy.tokenizer), ROOM))
        await gateway.start()
        runner = function if hasattr(function, "run") else FunctionRunner(function)
        own = HostedAgents(
            gateway=gateway,
            runner=runner,
            gives_reward=bool(reward and reward.agent),
            **{"timeout": 300.0, "on_crash": "score", "turns": asyncio.Semaphore(4)} | how,
        )
        agents = SeatedAgents(
            policy=own, opponents=others or own, seats=SEATS, learns=others is None
        )
        jobs: list[tuple[Scenario, list[Agent]]] = [
            (scenario(seat, n), [agents.open(n)]) for n in range(num)
        ]
        try:
            found = play_groups(env, cfg or Hidden.Config(), None, jobs, weights=reward)
            return [group.trajectories async for _, group in found]
        finally:
            await gateway.close()
            assert engine.num_open == 0

    def play(
        texts: list[Any],
        others: AgentFactory | None = None,
        env: type[Game] = Hidden,
        function: Any = plays,
        *,
        seat: str = "left",
        num: int = 1,
        cfg: Any = None,
        reward: RewardConfig | None = None,
        **how: Any,
    ) -> list[list[Trajectory]]:
        return asyncio.run(go(texts, others, env, function, seat, num, cfg, reward, **how))

    return play


def heard(t: Trajectory) -> list[str]:
    return [m["content"] for m in t.messages if m["role"] in ("user", "tool")]


def trained(t: Trajectory, renderer: Renderer) -> list[str]:
    """What is trained of each sequence."""
    return [
        renderer.decode([i for i, m in zip(s.ids, s.mask, strict=True) if m]) for s in t.sequences
    ]


@pytest.mark.parametrize(
    ("seat", "until", "texts", "others"),
    [("left", 5, [LOOK, "two", "two"], ["one"]), ("right", 4, [LOOK, "two"], ["two"])],
)
def test_a_function_plays_its_seat_against_another(
    play: Play, seat: str, until: int, texts: list[str], others: list[str]
) -> None:
    """Whoever of them begins."""
    cfg = Hidden.Config(until=until)
    [[t]] = play(list(texts), Players(others), seat=seat, cfg=cfg)
    assert t.error is None and t.reward == 1 and t.stop_reason == "env"
    first = f"{seat} sees {0 if seat == 'left' else 2}"
    assert heard(t)[:2] == [f"{seat}, it is your turn.", first]
    assert t.metrics["policy_calls"] == len(texts) and t.metrics[f"success_{seat}"] == 1
    assert [s.num_sampled > 0 for s in t.sequences] == [True]


def test_in_self_play_each_seat_has_its_own_agent_and_what_is_trained_is_its_own(
    play: Play, make_policy: Callable[..., Policy]
) -> None:
    renderer = Renderer(make_policy().tokenizer)
    texts = [LOOK, "two", LOOK, call("say", number=1), "two"]
    [[left], [right]] = play(list(texts))
    assert (left.reward, right.reward) == (1, 0)
    assert heard(left) == ["left, it is your turn.", "left sees 0", "left, it is your turn."]
    assert heard(right)[:2] == ["right, it is your turn.", "right sees 2"]
    for t, said in ((left, [LOOK, "two", "two"]), (right, texts[2:4])):
        assert trained(t, renderer) == ["".join(said)]
        assert t.metrics["crashed"] == 0 and t.metrics["policy_calls"] == len(said)
        assert [s.turn for s in t.steps] == list(range(len(said)))


def test_a_game_takes_one_place_of_those_that_play_at_once(play: Play) -> None:
    """Otherwise games would wait for each other's second seat for ever."""
    found = play(["two", "one", "two"] * 3, num=3, turns=asyncio.Semaphore(1))
    assert [[t.reward for t in group] for group in found] == [[1], [0]] * 3


async def once(client: Any, task: Any) -> str:
    """One move, and no more."""
    answer = await client.chat.completions.create(model="policy", messages=task.messages)
    return answer.choices[0].message.content


def test_who_leaves_before_the_end_is_cut_off_where_its_turn_comes(play: Play) -> None:
    [[left], [right]] = play(["two", "one"], function=once)
    assert [s.result for s in left.steps] == ["left, it is your turn."]
    assert (left.reward, right.reward) == (0, 1)
    assert (left.stop_reason, right.stop_reason) == ("env", "env")


def test_a_game_of_one_move_each_needs_no_loop(play: Play) -> None:
    [[left], [right]] = play(["two", "two"], function=once, cfg=Hidden.Config(until=4))
    assert (left.reward, right.reward) == (0, 1)


async def crashes(client: Any, task: Any) -> None:
    await task.reply(await once(client, task))
    raise LookupError("lost")


def test_a_crash_loses_where_it_counts_as_play(play: Play) -> None:
    [[t]] = play(["two"], Players(["one"]), function=crashes)
    assert t.stop_reason == "agent" and t.metrics["crashed"] == 1 and t.reward == 0
    assert "lost" in t.crash


def test_a_crash_that_is_left_out_fails_the_game_for_both(play: Play) -> None:
    [[left], [right]] = play(["two", "one"], function=crashes, on_crash="drop")
    for t in (left, right):
        assert t.failed and t.reward is None and "lost" in (t.error or "")


class Breaks(Hidden):
    @tool()
    async def look(self) -> str:
        """Break for one."""
        if self.turn == "right":
            raise LookupError("broken")
        return "fine"


def test_a_game_that_fails_at_one_seat_has_failed_for_both(play: Play) -> None:
    [[left], [right]] = play([LOOK, "two", LOOK], env=Breaks)
    for t in (left, right):
        assert t.failed and "LookupError: broken" in (t.error or "")
    assert left.sequences and right.sequences


def test_an_opponent_that_fails_is_no_bad_play(play: Play) -> None:
    [[t]] = play(["two"], Players([LLMError("it is ill")]))
    assert t.failed and t.error == "it is ill"


class Short(Hidden):
    max_turns = 1


def test_turns_are_counted_for_each_seat(play: Play) -> None:
    [[left], [right]] = play(["two", "one"], env=Short)
    assert left.stop_reason == right.stop_reason == "max_turns"
    assert (left.num_turns, right.num_turns) == (1, 1) and right.reward == 1


class Rates:
    """A runner whose agent says what it thinks of its own play."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def run(self, hosted: Any, url: str, trajectory: Trajectory) -> None:
        await FunctionRunner(plays).run(hosted, url, trajectory)
        is_left = "left" in hosted.opening[-1]["content"]
        trajectory.reward_parts.agent = 0.25 if is_left else 0.5


def test_each_seats_agent_has_a_say_in_its_own_reward(play: Play) -> None:
    reward = RewardConfig(env=1.0, agent=1.0)
    [[left], [right]] = play(["two", "one", "two"], function=Rates(), reward=reward)
    assert (left.reward, right.reward) == (1.25, 0.5)
    assert (left.reward_parts.env, right.reward_parts.env) == (1, 0)
