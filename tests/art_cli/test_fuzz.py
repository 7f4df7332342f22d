"""What a policy writes and an env gives, whatever it is, becomes an episode that can be kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any, Literal

import pytest
from fuzz import any_json, any_json_text, any_text, broken, fuzz
from hypothesis import given
from hypothesis import strategies as st

from art_cli.chat.openai_format import ChatFormatError, read_message, write_turn
from art_cli.chat.turns import parse_tool_calls, read_turn
from art_cli.envs.base import Done, Env, ToolError, tool
from art_cli.envs.tools import tools_of
from art_cli.evaluation.attempts import Attempt
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.rollout import rollout
from art_cli.runs.trajectories import read_rows, write_rows
from art_cli.system.files import json_line
from art_cli.system.untrusted import UntrustedValueError, check_json, read_json
from art_cli.types import Message, Scenario, Trajectory, TrajectoryGroup

SCENARIO = Scenario(id="train-0", split="train", seed=7)


class Given(Env):
    """Gives what a test sets, wherever an env gives something."""

    given: Any = "hello"
    where = ""

    def give(self, where: str, usual: Any) -> Any:
        return type(self).given if type(self).where == where else usual

    async def start(self) -> Any:
        return self.give("start", "hello")

    @tool()
    async def take(
        self, a: int = 0, b: float = 0.0, c: list[dict[str, str]] | None = None, d: Any = None
    ) -> Any:
        """Take many things."""
        return self.give("tool", f"{a} {b} {c} {d}")

    @tool()
    async def choose(self, of: Literal["x", "y"]) -> str:
        """Refuse it."""
        raise ToolError(str(self.give("refusal", of)))

    async def reply(self, text: str) -> Any:
        return Done() if text == "bye" else self.give("reply", text)

    async def judge_context(self) -> Any:
        return self.give("context", "")

    async def score(self, trajectory: Trajectory) -> Any:
        self.metrics["m"] = self.give("metric", 1.0)
        self.metrics[self.give("metric's name", "n")] = 1.0
        if type(self).where == "error":
            raise RuntimeError(type(self).given)
        return self.give("score", 0.5)


class Says(TurnAgent):
    """Says given turns, then bye."""

    def __init__(self, *turns: str) -> None:
        self._turns = [*turns, "bye"]
        self._said = 0

    async def act(self, messages: list[Message]) -> str:
        self._said += 1
        return self._turns[self._said - 1]

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0] * self._said


def play(*turns: str) -> Trajectory:
    return asyncio.run(rollout(Given, None, SCENARIO, Says(*turns)))


def check_kept(t: Trajectory, folder: Any) -> None:
    """It can be written as a trajectory file and an evaluation write it, and read again."""
    write_rows(folder / "rows.gz", 0, "train", [TrajectoryGroup([t])])
    [row] = read_rows(folder / "rows.gz")
    json.dumps(row, ensure_ascii=False).encode()
    read_json(json_line(row))
    attempt = json_line(asdict(Attempt.of(t, 0)))
    json.dumps(json.loads(attempt), ensure_ascii=False).encode()


@fuzz(600)
@given(any_json_text)
def test_json_is_read_or_refused(text: str) -> None:
    """What is read is what Python's reader makes of it, and can be written."""
    try:
        value = read_json(text)
    except ValueError as e:
        str(e).encode()
        return
    assert value == json.loads(text)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


@fuzz(300)
@given(any_json)
def test_what_passes_the_check_can_be_written_and_read(value: Any) -> None:
    try:
        check_json(value)
    except UntrustedValueError:
        return
    assert read_json(json.dumps(value, ensure_ascii=False, allow_nan=False)) == value


CALL = '<tool_call>{"name": "take", "arguments": {"a": 1, "d": {"x": [1, 2]}}}</tool_call>'
turns = st.one_of(
    any_text,
    broken(CALL),
    st.lists(any_json_text | any_text, max_size=3).map(
        lambda bodies: "".join(f"<tool_call>{b}</tool_call>" for b in bodies)
    ),
    st.builds(
        lambda arguments: f'<tool_call>{{"name": "take", "arguments": {arguments}}}</tool_call>',
        any_json_text | st.dictionaries(st.sampled_from("abcd"), any_json).map(json.dumps),
    ),
).map(lambda text: text.encode(errors="replace").decode())  # as a tokenizer decodes


@fuzz(300)
@given(turns)
def test_a_turn_becomes_openais_message_and_back(text: str) -> None:
    message = write_turn(read_turn(text), with_tools=True)
    json.dumps(message, ensure_ascii=False).encode()
    said = read_message(json.loads(json.dumps(message)))
    again = [c for c in parse_tool_calls(said["content"]) if not isinstance(c, str)]
    for call in message.get("tool_calls", []):
        assert json.loads(call["function"]["arguments"]) in [c["arguments"] for c in again]


@fuzz(300)
@given(any_json)
def test_a_message_is_read_or_refused(value: Any) -> None:
    calls = value if isinstance(value, dict) else {"tool_calls": value}
    for message in (value, {"role": "user", "content": value}, {"role": "assistant"} | calls):
        try:
            check_json(message)
            read_message(message)["content"].encode()
        except (UntrustedValueError, ChatFormatError):
            pass


@fuzz(300)
@given(st.dictionaries(st.sampled_from("abcd") | any_text, any_json, max_size=5))
def test_arguments_are_taken_or_refused_in_words(arguments: dict[str, Any]) -> None:
    for spec in tools_of(Given).values():
        try:
            parsed = spec.parse(arguments)
        except ToolError as e:
            assert len(str(e)) < 5000
        else:
            assert parsed.keys() >= {"a", "b", "c", "d"} or parsed.keys() == {"of"}


@fuzz(200)
@given(turns)
def test_whatever_a_policy_says_is_an_episode(tmp_path_factory: Any, text: str) -> None:
    Given.where = ""
    t = play(text)
    assert (t.reward, t.error) == (0.5, None)
    check_kept(t, tmp_path_factory.getbasetemp())


PLACES = ("start", "reply", "tool", "refusal", "context", "metric", "metric's name", "score")
TOOLS = [
    '<tool_call>{"name": "take", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "choose", "arguments": {"of": "x"}}</tool_call>',
]
odd_messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(("user", "assistant")) | any_text, "content": any_text | any_json},
        optional={"tool_calls": any_json},
    ),
    max_size=3,
)


@pytest.mark.parametrize("where", [*PLACES, "error"])
@fuzz(40)
@given(any_json | any_text | odd_messages | st.just(10**5000))
def test_whatever_an_env_gives_is_that_episodes_own(
    tmp_path_factory: Any, where: str, given: Any
) -> None:
    Given.where, Given.given = where, given
    t = play("hi", *TOOLS)
    assert t.reward is None or t.error is None
    check_kept(t, tmp_path_factory.getbasetemp())
    Given.where = ""
    assert play("hi", *TOOLS).reward == 0.5
