"""Seats that call tools: whose results they are, what is trained, and calls that are the move."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from counting import Hidden, call
from seats import SEATS, Players, Script, scenario

from art_cli.chat.render import Renderer
from art_cli.config.sections.reward import RewardConfig
from art_cli.engines.base import Session
from art_cli.envs.base import Done, Tool, ToolError, tool
from art_cli.envs.game import Game
from art_cli.models.policy import Policy
from art_cli.rollout.agent import Agent
from art_cli.rollout.groups import play_groups
from art_cli.rollout.match import SeatedAgents
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import play_episode, rollout
from art_cli.types import Scenario, Trajectory

CFG = Hidden.Config()
LOOK = call("look")


def match(left: list[str], right: list[str], env: type[Game] = Hidden) -> list[Trajectory]:
    """Play a game; return both trajectories."""
    both = Players(left, right)
    agent = SeatedAgents(policy=both, opponents=both, seats=SEATS, learns=True).open(0)
    played = asyncio.run(rollout(env, CFG, scenario("left"), agent))
    return [played, *agent.siblings(played)]


def heard(t: Trajectory) -> list[str]:
    return [m["content"] for m in t.messages if m["role"] in ("user", "tool")]


def test_each_seat_has_its_own_calls_and_results() -> None:
    left, right = match([LOOK, "two", LOOK, "two"], ["one", LOOK, "one"])
    turn = "left, it is your turn."
    assert heard(left) == [turn, "left sees 0", turn, "left sees 3"]
    assert heard(right) == ["right, it is your turn."]
    assert [(s.turn, s.tool, s.said) for s in left.steps] == [
        (0, "look", ""),
        (1, None, "two"),
        (2, "look", ""),
        (3, None, "two"),
    ]
    assert left.messages[2].get("tool_calls") == [{"name": "look", "arguments": {}}]
    assert (left.reward, right.reward) == (1, 0)


def test_a_call_that_gives_the_turn_away_is_the_move() -> None:
    left, right = match([call("say", number=2), LOOK, "two"], [call("say", number=1)])
    assert heard(left)[1:] == ["left, it is your turn.", "left sees 3"]
    assert [s.result for s in left.steps] == ["left, it is your turn.", "left sees 3", None]
    assert [s.result for s in right.steps] == [None]
    assert (left.reward, right.reward) == (1, 0)


def test_the_last_move_may_be_a_call() -> None:
    left, right = match([call("say", number=2)] * 2, [call("say", number=1)])
    assert (left.reward, left.stop_reason, right.stop_reason) == (1, "env", "env")
    assert left.steps[-1].result is None and left.messages[-1]["role"] == "assistant"


def test_calls_of_a_turn_are_made_one_after_another() -> None:
    """The one behind a move is made when the turn has come again: it sees what the other did."""
    left, _ = match([call("say", number=2) + LOOK, "two"], ["one"])
    assert [s.result for s in left.steps] == [
        "left, it is your turn.",
        "left sees 3",
        None,
    ]
    left, _ = match([call("say", number=2) * 2 + LOOK], ["one"])
    assert left.reward == 1 and [s.result for s in left.steps][1:] == [None, None]


class Talks(Hidden):
    """A move that says something; one that breaks a rule; one that ends the game."""

    @tool()
    async def nod(self) -> str:
        """Say one."""
        assert self.turn
        await self.move(self.turn, "one")
        return "nodded"

    @tool()
    async def cheat(self) -> str:
        """Lose."""
        assert self.turn
        await self.move(self.turn, "a hundred")
        raise ToolError("no")

    @tool()
    async def resign(self) -> Done:
        """Give up."""
        assert self.turn
        self.winner = self.other(self.turn)
        return Done()


def alone(words: list[str], env: type[Game] = Talks) -> Trajectory:
    """Play the left seat against the script, which says one."""

    class Ones(env):  # type: ignore[misc, valid-type]
        async def script(self, seat: str) -> str:
            return "one"

    return play_episode(Ones(scenario("left"), CFG), iter(words).__next__)


def both(words: list[str]) -> Iterator[Trajectory]:
    """The left seat's game: as a seat against one who says one, and against such a script."""
    yield match(words, ["one"] * 3, Talks)[0]
    yield alone(words)


@pytest.mark.parametrize(
    ("words", "results", "reward"),
    [
        (["two", LOOK, "two"], ["left, it is your turn.", "left sees 3", None], 1),
        ([call("say", number=2), "two"], ["left, it is your turn.", None], 1),
        ([call("say", number=2) + LOOK, "two"], ["left, it is your turn.", "left sees 3", None], 1),
        ([call("nod"), "two", "one"], ["nodded\nleft, it is your turn.", None], 0),
        ([call("cheat")], [None], 0),
        ([call("resign")], [None], 0),
        ([call("say", number=0), call("cheat")], ["error: say one or two", None], 0),
    ],
)
def test_a_seat_meets_the_same_game_alone(
    words: list[str], results: list[str | None], reward: float
) -> None:
    for t in both(words):
        assert t.error is None and [s.result for s in t.steps] == results
        assert t.reward == reward and t.stop_reason == "env"


def test_wrong_calls_count_at_the_seat_that_made_them_and_cost_it() -> None:
    wrong = call("say", number="x") + call("nothing") + "<tool_call>{</tool_call>"
    players = Players([call("say", number=0), "one"], [wrong, LOOK, "two"], ["two"], ["two", "one"])
    agents = SeatedAgents(policy=players, opponents=players, seats=SEATS, learns=True)

    async def play() -> list[list[Trajectory]]:
        jobs: list[tuple[Scenario, list[Agent]]] = [(scenario("left"), [agents.open(0)])]
        cost = RewardConfig(env=1.0, invalid_action_cost=0.1)
        found = play_groups(Hidden, Hidden.Config(until=3), None, jobs, weights=cost)
        return [group.trajectories async for _, group in found]

    [[left], [right]] = asyncio.run(play())
    assert (left.num_invalid, right.num_invalid) == (0, 3)
    assert left.steps[0].is_error and left.steps[0].result == "error: say one or two"
    assert left.num_tool_errors == 1 and right.num_tool_errors == 3
    assert (left.reward, right.reward) == (0, pytest.approx(0.7))


class Fails(Hidden):
    @tool()
    async def fail(self) -> str:
        """Break."""
        raise LookupError("broken")


@pytest.mark.parametrize("breaks", ["left", "right"])
def test_a_tool_that_fails_fails_the_game_for_both(breaks: str) -> None:
    Fails.closed = 0
    words = {"left": ["one", "one", "two"], "right": ["one", "one"]} | {breaks: [call("fail")]}
    for t in match(words["left"], words["right"], Fails):
        assert t.failed and t.reward is None and "LookupError: broken" in (t.error or "")
    assert Fails.closed == 1


class Short(Hidden):
    max_turns = 2


def test_turns_with_calls_are_counted_for_each_seat() -> None:
    left, right = match([LOOK, "one"], ["one"], Short)
    assert left.stop_reason == right.stop_reason == "max_turns"
    assert (left.num_turns, right.num_turns) == (2, 1)
    assert heard(left)[-1] == "left, it is your turn."
    assert (left.reward, right.reward) == (0, 1)


class Uneven(Hidden):
    """The left one alone may look."""

    def tools_of(self, seat: str) -> list[Tool]:
        return [t for t in super().tools_of(seat) if t.name == "say" or seat == "left"]


def test_a_seat_is_offered_its_own_tools_and_no_others() -> None:
    players = Players([LOOK, "two", "two"], [LOOK, "one"])
    agent = SeatedAgents(policy=players, opponents=players, seats=SEATS, learns=True).open(0)
    left = asyncio.run(rollout(Uneven, CFG, scenario("left"), agent))
    [right] = agent.siblings(left)
    assert [p.offered for p in players.agents] == [["look", "say"], ["say"]]
    assert [t["function"]["name"] for t in right.tools] == ["say"]
    assert right.steps[0].is_error and "there is no tool 'look'" in (right.steps[0].result or "")
    env = Uneven(scenario("right"), CFG)
    words = iter([call("say", number=2)] * 9)
    assert [t["function"]["name"] for t in play_episode(env, words.__next__).tools] == ["say"]


def test_a_seats_calls_are_trained_and_their_results_are_not(
    make_policy: Callable[..., Policy],
) -> None:
    renderer = Renderer(make_policy().tokenizer, [])
    said = ([LOOK, "two", call("say", number=2)], [LOOK, "one"])

    class Policies:
        words = iter(said)

        def open(self, seed: int) -> Agent:
            session: Session = Script(renderer, next(self.words))  # type: ignore[assignment]
            return PolicyAgent(renderer, lambda: session, 4096)

    policies = Policies()
    agent = SeatedAgents(policy=policies, opponents=policies, seats=SEATS, learns=True).open(0)
    left = asyncio.run(rollout(Hidden, CFG, scenario("left"), agent))
    for t, words in zip((left, *agent.siblings(left)), said, strict=True):
        [sequence] = t.sequences
        sampled = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
        assert sampled == [i for w in words for i in renderer.encode(w + renderer.end_of_turn)]
        assert [p == -1.0 for p in sequence.engine_logprobs] == [m == 1 for m in sequence.mask]
        seat = t.scenario.data["seat"]
        read = renderer.decode(
            [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if not m]
        )
        other = SEATS[1 - SEATS.index(seat)]
        assert f"{seat} sees" in read and f"{other} sees" not in read
    assert left.reward == 1
