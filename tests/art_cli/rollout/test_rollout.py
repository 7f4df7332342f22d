"""The turn loop: what an env and a policy make of each other, and what their failures become."""

import asyncio
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy
import pytest
import torch
from hosted import Cut

from art_cli.chat.render import Renderer
from art_cli.envs.base import Done, Env, ToolError, tool
from art_cli.envs.tools import tools_of
from art_cli.errors import EngineError
from art_cli.evaluation.attempts import Attempt, AttemptStore
from art_cli.models.policy import Policy
from art_cli.rollout.policy_agent import PolicyAgent
from art_cli.rollout.rollout import play, rollout
from art_cli.runs.trajectories import read_rows, write_rows
from art_cli.system.untrusted import MAX_TEXT
from art_cli.types import Completion, Message, Scenario, Trajectory, TrajectoryGroup

SCENARIO = Scenario(id="train-0", split="train", seed=7)


class Desk(Env):
    """Answers tools and texts; the bodies are what a test sets."""

    max_turns = 3
    tool_timeout = 300.0
    episode_timeout = 300.0
    closed = 0

    async def start(self) -> str | list[Message]:
        self.log: list[str] = []
        return "hello"

    @tool()
    async def wait(self, seconds: float, note: str) -> str:
        """Come back after some seconds."""
        self.log.append(f"{note} starts")
        await asyncio.sleep(seconds)
        self.log.append(f"{note} ends")
        return note

    @tool()
    def block(self, seconds: float) -> str:
        """Block a thread."""
        time.sleep(seconds)
        return threading.current_thread().name

    @tool()
    def size(self, of: Literal["small", "large"], count: int = 1) -> str:
        """Tell a size."""
        return f"{count} {of}"

    @tool()
    def refuse(self) -> str:
        """Never do it."""
        raise ToolError("not today")

    @tool()
    def crash(self) -> str:
        """Fail."""
        return {}["key"]

    @tool()
    def finish(self) -> Done:
        """End."""
        return Done()

    async def reply(self, text: str) -> str | Done:
        return Done() if text == "bye" else f"you said {text}"

    async def score(self, trajectory: Trajectory) -> float | None:
        self.metrics["turns"] = trajectory.num_turns
        return 0.5

    async def close(self) -> None:
        Desk.closed += 1


class Script:
    """A session that says given texts, and remembers what it was asked with."""

    def __init__(self, renderer: Renderer, texts: list[str | Exception]) -> None:
        self._renderer = renderer
        self._texts = iter(texts)
        self.asked: list[list[int]] = []

    async def generate(self, ids: list[int]) -> Completion:
        self.asked.append(list(ids))
        text = next(self._texts)
        if isinstance(text, Exception):
            raise text
        said = list(self._renderer.encode(text))
        if not isinstance(text, Cut):
            said += self._renderer.encode(self._renderer.end_of_turn)
        finish = "length" if isinstance(text, Cut) else "stop"
        return Completion(
            token_ids=said, logprobs=[-1.0] * len(said), finish_reason=finish, policy_version=4
        )

    def close(self) -> None:
        pass


Play = Callable[..., Trajectory]


@pytest.fixture
def run(make_policy: Callable[..., Policy]) -> Iterator[Play]:
    """Play an episode of an env in which the policy says given texts."""
    policy = make_policy()

    def run(env: type[Env], *texts: str | Exception, room: int = 4096) -> Trajectory:
        renderer = Renderer(policy.tokenizer, [t.schema() for t in tools_of(env).values()])
        agent = PolicyAgent(renderer, lambda: Script(renderer, list(texts)), room)
        return asyncio.run(rollout(env, None, SCENARIO, agent))

    Desk.closed = 0
    yield run


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def results(trajectory: Trajectory) -> list[str]:
    return [m["content"] for m in trajectory.messages if m["role"] == "tool"]


class Unprintable:
    def __str__(self) -> str:
        return {}["key"]


async def later(value: Any) -> Any:
    return value


def raise_(what: Any) -> str:
    raise RuntimeError(what)


def deep_opening() -> list[Any]:
    arguments: Any = {}
    for _ in range(500):
        arguments = {"a": arguments}
    return [
        {"role": "assistant", "content": "x", "tool_calls": [{"name": "a", "arguments": arguments}]}
    ]


def written(t: Trajectory, folder: Path) -> list[dict[str, Any]]:
    """What a trajectory file and an evaluation's keep of it."""
    write_rows(folder / "rows.gz", 0, "train", [TrajectoryGroup([t])])
    store = AttemptStore(folder / "attempts.jsonl")
    store.add(Attempt.of(t, 0), {})
    assert len(store.read()) == 1
    return read_rows(folder / "rows.gz")


def subclass(**methods: Any) -> type[Desk]:
    return type("Changed", (Desk,), methods)


# ---------------------------------------------------------------- a good episode


def test_a_conversation_becomes_a_trajectory(run: Play) -> None:
    t = run(Desk, "hi", "bye")
    assert [m["content"] for m in t.messages] == ["hello", "hi", "you said hi", "bye"]
    assert [m["role"] for m in t.messages] == ["user", "assistant"] * 2
    assert (t.reward, t.stop_reason, t.error, t.truncated) == (0.5, "env", None, False)
    assert t.metrics == {"turns": 2.0} and t.policy_versions == [4, 4]
    assert Desk.closed == 1


def test_what_is_trained_on_is_what_was_sampled(run: Play, make_policy: Any) -> None:
    (sequence,) = run(Desk, "hi", "bye").sequences
    sampled = [i for i, m in zip(sequence.ids, sequence.mask, strict=True) if m]
    assert make_policy().tokenizer.decode(sampled) == "hi<|im_end|>bye<|im_end|>"
    logprobs = zip(sequence.engine_logprobs, sequence.mask, strict=True)
    assert all(logprob == -m for logprob, m in logprobs)


def test_each_turn_extends_the_ids_of_the_last(make_policy: Any) -> None:
    renderer = Renderer(make_policy().tokenizer)
    script = Script(renderer, ["hi", "bye"])
    asyncio.run(rollout(Desk, None, SCENARIO, PolicyAgent(renderer, lambda: script, 4096)))
    first, second = script.asked
    assert second[: len(first)] == first and len(second) > len(first)


def test_the_system_prompt_opens_the_conversation(run: Play) -> None:
    t = run(subclass(system="Be kind."), "bye")
    assert [m["role"] for m in t.messages] == ["system", "user", "assistant"]


def test_an_opening_of_several_messages_is_taken_as_it_is(run: Play) -> None:
    opening: list[Message] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]

    async def start(self: Desk) -> list[Message]:
        return opening

    assert run(subclass(start=start), "bye").messages[:3] == opening


def test_what_the_env_did_is_recorded_in_its_order(run: Play) -> None:
    both = call("wait", seconds=0.05, note="a") + "<tool_call>oh</tool_call>" + call("refuse")
    t = run(Desk, both, "bye")
    first, second, third, last = t.steps
    assert (first.tool, first.arguments) == ("wait", {"seconds": 0.05, "note": "a"})
    assert (first.turn, first.result, first.is_error) == (0, "a", False)
    assert (second.turn, second.tool, second.is_error) == (0, "", True)
    assert (third.turn, third.result, third.is_error) == (0, "error: not today", True)
    assert (last.turn, last.tool, last.said, last.result) == (1, None, "bye", None)
    assert (t.num_turns, t.num_calls, t.num_tool_errors) == (2, 2, 2)


def test_turns_are_limited(run: Play) -> None:
    t = run(Desk, "1", "2", "3")
    assert (t.stop_reason, t.num_turns, t.reward) == ("max_turns", 3, 0.5)


def test_a_full_context_ends_the_episode_with_a_reward(run: Play) -> None:
    t = run(Desk, "hi " * 400, "never asked", room=1000)
    assert (t.stop_reason, t.num_turns, t.reward, t.truncated) == ("context", 1, 0.5, True)


def test_a_turn_that_was_cut_off_calls_nothing(run: Play) -> None:
    t = run(Desk, Cut(call("size", of="small") + "}}</tool_call>"), call("size", of="large"), "bye")
    cut, whole = results(t)
    assert cut.startswith("error: the turn was cut off") and whole == "1 large"
    assert t.truncated and "tool_calls" in t.messages[1] and t.messages[1]["tool_calls"] == []


def test_words_that_were_cut_off_are_heard(run: Play) -> None:
    assert run(Desk, Cut("hi"), "bye").messages[2]["content"] == "you said hi"


def test_thinking_is_not_heard(run: Play) -> None:
    t = run(Desk, f"<think>{call('crash')}</think>hi", "bye")
    assert t.messages[2]["content"] == "you said hi" and t.reward == 0.5


def test_play_makes_demonstrations_without_a_model() -> None:
    said = iter(["hi", call("size", of="small"), "bye"])
    messages = play(Desk(SCENARIO, None), said.__next__)
    assert [m["content"] for m in messages][3:] == [call("size", of="small"), "1 small", "bye"]


# ---------------------------------------------------------------- tools


def test_calls_of_one_turn_run_side_by_side_and_answer_in_order(run: Play) -> None:
    envs: list[Desk] = []
    kept = subclass(__init__=lambda self, *a: (Desk.__init__(self, *a), envs.append(self))[0])
    t = run(kept, call("wait", seconds=0.1, note="a") + call("wait", seconds=0, note="b"), "bye")
    assert results(t) == ["a", "b"]
    assert envs[0].log == ["a starts", "b starts", "b ends", "a ends"]


def test_plain_tools_block_threads_and_not_each_other(run: Play) -> None:
    all_are_here = threading.Barrier(3)

    @tool()
    def block(self: Desk, seconds: float) -> str:
        """Wait for the others."""
        all_are_here.wait(seconds)
        return threading.current_thread().name

    t = run(subclass(block=block), call("block", seconds=60) * 3, "bye")
    assert results(t) == ["art-env"] * 3


@pytest.mark.parametrize(
    ("said", "observed"),
    [
        (call("size", of="large", count=2), "2 large"),
        (call("size", of="huge"), "error: invalid arguments for size: of: Input should be"),
        (call("size"), "error: invalid arguments for size: of: Field required"),
        (call("size", of="small", colour=1), "size: colour: Extra inputs are not permitted"),
        (call("refuse"), "error: not today"),
        (call("fly"), "error: there is no tool 'fly'; there are wait, block, size"),
        ("<tool_call>size</tool_call>", "error: the tool call is not valid JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', "error: the tool call has no name"),
        ('<tool_call>{"name": "size", "arguments": []}</tool_call>', "are not an object"),
    ],
)
def test_a_bad_call_is_an_observation(run: Play, said: str, observed: str) -> None:
    t = run(Desk, said, "bye")
    assert observed in results(t)[0]
    assert t.steps[0].is_unknown == ("no tool 'fly'" in observed)
    assert t.reward == 0.5


def test_a_tool_can_end_the_episode(run: Play) -> None:
    t = run(Desk, call("size", of="small") + call("finish"))
    assert (t.stop_reason, t.num_turns, t.reward) == ("env", 1, 0.5)


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("methods", "error"),
    [
        ({"start": lambda self: 1 / 0}, "ZeroDivisionError: division by zero"),
        ({"start": lambda self: None}, "start() returned None; expected text or a list"),
        ({"reply": lambda self, text: [][1]}, "IndexError: list index out of range"),
        ({"reply": lambda self, text: None}, "reply() returned None; expected text or Done()"),
        ({"reply": lambda self, text: Done}, "expected text or Done()"),
        ({"reply": lambda self, text: next(iter(()))}, "raised StopIteration()"),
        ({"reply": lambda self, text: exit(3)}, "raised SystemExit(3)"),
        ({"score": lambda self, t: math.nan}, "score() returned nan; a reward must be"),
        ({"score": lambda self, t: math.inf}, "score() returned inf; a reward must be"),
        ({"score": lambda self, t: "good"}, "score() returned 'good' (str); a reward is a number"),
        ({"score": lambda self, t: (1.0, "x")}, "put what else is to be logged into self.metrics"),
        (
            {"score": lambda self, t: later(1.0)},
            "(coroutine); a reward is a number: an `await`",
        ),
        ({"score": lambda self, t: numpy.zeros(2)}, "(ndarray); a reward is a number"),
        (
            {"score": lambda self, t: self.metrics.update(x="y")},
            "self.metrics['x'] is 'y' (str); a metric is a number",
        ),
        ({"__init__": lambda self, *a: None}, "AttributeError"),
        ({"start": lambda self: "\ud800"}, "start() gave no readable text: it holds half a"),
        ({"start": lambda self: [{"role": "user"}]}, "expected text or a list of messages"),
        ({"start": lambda self: [{"role": "user", "content": 7}]}, "expected text or a list"),
        ({"start": lambda self: [{"role": "bot", "content": "a"}]}, "expected text or a list"),
        ({"start": lambda self: deep_opening()}, "it is nested more than 64 deep"),
        ({"start": lambda self: "x" * (MAX_TEXT + 1)}, f"at most {MAX_TEXT} can be read"),
        ({"reply": lambda self, text: "a\udfff"}, "reply() gave no readable text"),
        ({"reply": lambda self, text: "x" * (MAX_TEXT + 1)}, f"at most {MAX_TEXT} can be read"),
        ({"reply": lambda self, text: 10**5000}, "cannot be shown (int); expected text"),
        ({"reply": lambda self, text: later("a")}, "expected text or Done(): an `await`"),
        ({"judge_context": lambda self: "\ud800"}, "judge_context() gave no readable text"),
        ({"score": lambda self, t: self.metrics.update({"\ud800": 1})}, "the name of a metric"),
        ({"score": lambda self, t: self.metrics.update({7: 1})}, "expected text, got int"),
        ({"score": lambda self, t: 10**5000}, "a reward is a number"),
        ({"reply": lambda self, text: raise_("\ud800" * 30_000)}, "RuntimeError: \\ud800"),
        ({"reply": lambda self, text: raise_(Unprintable())}, "its text is unavailable"),
    ],
)
def test_a_bug_of_the_env_is_a_failure_with_its_line(
    run: Play, methods: dict[str, Any], error: str, tmp_path: Path
) -> None:
    t = run(subclass(**methods), "bye")
    assert (t.reward, t.stop_reason) == (None, "error")
    assert t.error and error in t.error.partition("\n")[0]
    assert t.error.startswith((__file__, "start() returned")) or "rollout.py" in t.traceback
    [row] = written(t, tmp_path)
    json.dumps(row, ensure_ascii=False).encode()


@pytest.mark.parametrize("text", ["a\ud800", "x" * (MAX_TEXT + 1)])
@pytest.mark.parametrize("refuses", [False, True])
def test_a_tool_that_gives_no_readable_text_is_a_failure(
    run: Play, text: str, refuses: bool
) -> None:
    @tool()
    def odd(self: Desk) -> str:
        """Say it."""
        if refuses:
            raise ToolError(text)
        return text

    t = run(subclass(odd=odd), call("odd"), "bye")
    assert (t.reward, t.stop_reason) == (None, "error")
    assert t.error and t.error.startswith(f"{__file__}:")
    assert "tool odd() gave" in t.error.partition("\n")[0]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (lambda: (c for c in "ab"), "(generator); a tool returns text: join what it yields"),
        (lambda: later("a"), "an `await` is missing"),
        (object, "(object); a tool returns text, and this object has none but its address"),
        (lambda: print, "a tool returns text"),
    ],
)
def test_a_tool_that_returns_no_text_is_called_by_its_place(
    run: Play, given: Callable[[], Any], why: str
) -> None:
    @tool()
    async def odd(self: Desk) -> Any:
        """Say it."""
        return given()

    t = run(subclass(odd=odd), call("odd"), "bye")
    assert (t.reward, t.stop_reason) == (None, "error")
    assert t.error and t.error.startswith(f"{__file__}:") and why in t.error


def test_numbers_of_other_libraries_are_rewards_and_metrics(run: Play) -> None:
    def score(self: Desk, t: Trajectory) -> Any:
        self.metrics |= {"a": numpy.float32(0.5), "b": torch.tensor(2), "c": True}  # type: ignore[dict-item]
        return torch.tensor(0.25)

    t = run(subclass(score=score), "bye")
    assert t.reward == 0.25 and type(t.reward) is float
    assert {k: t.metrics[k] for k in "abc"} == {"a": 0.5, "b": 2.0, "c": 1.0}


@pytest.mark.parametrize("depth", [60, 64, 100, 500, 960])
def test_arguments_however_deep_end_no_run(run: Play, depth: int, tmp_path: Path) -> None:
    @tool()
    def keep(self: Desk, value: Any) -> str:
        """Keep it."""
        return "kept"

    deep = f'{{"name": "keep", "arguments": {{"value": {"[" * depth}{"]" * depth}}}}}'
    t = run(subclass(keep=keep), f"<tool_call>{deep}</tool_call>", "bye")
    assert t.reward == 0.5
    assert ("kept" if depth < 64 else "error: ") in results(t)[0]
    assert len(written(t, tmp_path)) == 1


def test_many_wrong_arguments_are_told_in_short(run: Play) -> None:
    t = run(Desk, call("size", **{f"x{n}": n for n in range(10_000)}), "bye")
    assert len(results(t)[0]) < 5000 and t.reward == 0.5


def test_a_template_that_refuses_what_was_said_fails_that_episode(make_policy: Any) -> None:
    """A template is a program: it may stop at anything that a model says."""
    policy = make_policy()
    policy.tokenizer.name_or_path = "alternating/model"
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{% if m.content == 'odd' %}"
        "{{ raise_exception('not that') }}{% endif %}{% endfor %}" + policy.tokenizer.chat_template
    )
    renderer = Renderer(policy.tokenizer, [t.schema() for t in tools_of(Desk).values()])
    said = Script(renderer, ["odd", "bye"])
    t = asyncio.run(rollout(Desk, None, SCENARIO, PolicyAgent(renderer, lambda: said, 4096)))
    assert (t.reward, t.stop_reason) == (None, "error")
    assert t.error and "'alternating/model' refuses the messages" in t.error
    assert "not that" in t.error


def test_two_results_are_one_where_a_template_wants_roles_to_alternate(make_policy: Any) -> None:
    policy = make_policy()
    policy.tokenizer.chat_template = (
        "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}"
        + policy.tokenizer.chat_template
    )
    renderer = Renderer(policy.tokenizer, [t.schema() for t in tools_of(Desk).values()])
    said = Script(renderer, [call("size", of="small") * 2, "bye"])
    t = asyncio.run(rollout(Desk, None, SCENARIO, PolicyAgent(renderer, lambda: said, 4096)))
    assert (t.reward, t.error, len(results(t))) == (0.5, None, 2)
    assert "\n".join(results(t)) in renderer.text(t.messages)


def test_a_huge_text_of_the_env_fills_the_context(run: Play) -> None:
    async def reply(self: Desk, text: str) -> str:
        return "the value " * 300_000

    t = run(subclass(reply=reply), "hi", "never asked")
    assert (t.stop_reason, t.num_turns, t.reward, t.truncated) == ("context", 1, 0.5, True)


def test_a_long_text_is_read_beside_the_other_episodes(make_policy: Any) -> None:
    """While one is read, the event loop goes on: it releases what the reading waits for."""
    renderer = Renderer(make_policy().tokenizer)
    going_on, encode = threading.Event(), renderer._tokenizer.encode

    def held(text: str, **more: Any) -> Any:
        assert len(text) < 2**15 or going_on.wait(30), "the event loop stood still"
        return encode(text, **more)

    renderer._tokenizer.encode = held  # type: ignore[method-assign]
    long = subclass(start=lambda self: "the value " * 5000)

    async def both() -> list[Trajectory]:
        agents = [PolicyAgent(renderer, lambda: Script(renderer, ["bye"]), 10**6) for _ in range(2)]
        first = asyncio.ensure_future(rollout(long, None, SCENARIO, agents[0]))
        second = await rollout(Desk, None, SCENARIO, agents[1])
        going_on.set()
        return [await first, second]

    assert [t.reward for t in asyncio.run(both())] == [0.5, 0.5]


def test_a_tool_that_raises_is_a_failure_with_the_users_line(run: Play) -> None:
    t = run(Desk, call("crash"))
    assert (t.reward, t.stop_reason, t.num_turns) == (None, "error", 1)
    assert t.error and t.error.startswith(f"{__file__}:") and "KeyError: 'key'" in t.error
    assert 'return {}["key"]' in t.traceback
    assert Desk.closed == 1


def test_no_score_is_no_reward(run: Play) -> None:
    t = run(subclass(score=lambda self, t: None), "bye")
    assert (t.reward, t.stop_reason, t.error) == (None, "env", None)


@pytest.mark.parametrize("tool", ["block", "wait"])
def test_a_tool_that_never_returns_is_a_timeout(run: Play, tool: str) -> None:
    more = {"note": "x"} if tool == "wait" else {}
    t = run(subclass(tool_timeout=0.3), call(tool, seconds=1e5, **more))
    assert (t.reward, t.stop_reason) == (None, "timeout")
    assert t.error == f"tool {tool}() did not return within 0.3 s"
    assert Desk.closed == 1


def test_many_slow_tools_use_the_episodes_time_up(run: Play) -> None:
    slow = subclass(episode_timeout=0.5, tool_timeout=0.25, max_turns=30)
    t = run(slow, *[call("block", seconds=0.2)] * 30)
    assert t.stop_reason == "timeout" and t.num_turns <= 4


def test_an_env_that_sleeps_forever_is_a_timeout(run: Play) -> None:
    async def reply(self: Desk, text: str) -> str:
        await asyncio.sleep(1e5)
        return ""

    t = run(subclass(reply=reply, episode_timeout=2.0), "hi")
    assert (t.reward, t.stop_reason) == (None, "timeout")
    assert t.error and re.match(r"reply\(\) did not return within [12][.\d]* s", t.error)
    assert Desk.closed == 1


def test_a_failing_close_keeps_the_reward_and_is_noted(run: Play) -> None:
    t = run(subclass(close=lambda self: 1 / 0), "bye")
    assert t.reward == 0.5
    assert t.error == "close() failed: ZeroDivisionError('division by zero')"


def test_a_failure_of_the_engine_is_not_the_episodes(run: Play) -> None:
    with pytest.raises(EngineError, match="the engine died"):
        run(Desk, EngineError("the engine died"))
    assert Desk.closed == 1
