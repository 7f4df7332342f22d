"""Tools that an env knows only once its episode has begun."""

import asyncio
from typing import Any

import pytest
from chat_models import BY_NAME

import art_cli as art
from art_cli.envs.tools import tools_of
from art_cli.errors import UsageError
from art_cli.rollout.agent import TurnAgent
from art_cli.rollout.rollout import play_episode, rollout
from art_cli.types import Message, Scenario, Trajectory

SCENARIO = Scenario(id="train-0", split="train", seed=1)
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Given(art.Env):
    """Each episode has a tool of its own, beside one that is a method and two with taken names."""

    async def start(self) -> str:
        self.heard: list[str] = []
        self.own = art.Tool(name=f"say_{self.scenario.id}", description="Say.", parameters=TEXT)
        return "Say hello."

    def tools(self) -> list[art.Tool]:
        score = art.Tool(name="score", description="Rate.", parameters=TEXT)
        return [*super().tools(), self.own, score]

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        if "text" not in arguments:
            raise art.ToolError("text is missing")
        self.heard.append(f"{name} {arguments['text']}")
        return art.Done() if arguments["text"] == "end" else "heard"

    @art.tool(name="reply")
    def answer_customer(self, text: str) -> str:
        """Answer."""
        self.heard.append(f"reply {text}")
        return "sent"

    async def score(self, trajectory: Trajectory) -> float:
        return float(len(self.heard))


class Says(TurnAgent):
    """Some turns; remembers what was offered."""

    def __init__(self, *turns: str) -> None:
        self._turns, self.offered = list(turns), []

    def offer(self, tools: list[dict[str, Any]]) -> None:
        self.offered = [tool["function"]["name"] for tool in tools]

    async def act(self, messages: list[Message]) -> str:
        return self._turns.pop(0)

    def record(self, trajectory: Trajectory) -> None:
        trajectory.policy_versions = [0]


def call(name: str, **arguments: str) -> str:
    text = ", ".join(f'"{k}": "{v}"' for k, v in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{text}}}}}</tool_call>'


def test_they_are_offered_and_called_by_name() -> None:
    agent = Says(
        call("reply", text="a"),
        call("score", text="b"),
        call("say_train-0"),
        call("answer_customer", text="c"),
        call("say_train-0", text="end"),
    )
    t = asyncio.run(rollout(Given, None, SCENARIO, agent))
    assert t.error is None and t.reward == 3.0 and t.stop_reason == "env"
    assert agent.offered == ["reply", "say_train-0", "score"]
    assert [tool["function"]["name"] for tool in t.tools] == agent.offered
    results = [step.result for step in t.steps]
    assert results[:3] == ["sent", "heard", "error: text is missing"]
    assert results[3] == (
        "error: there is no tool 'answer_customer'; there are reply, say_train-0, score"
    )


def test_a_tool_that_is_not_offered_cannot_be_called() -> None:
    class Fewer(Given):
        def tools(self) -> list[art.Tool]:
            return [self.own]

    t = asyncio.run(rollout(Fewer, None, SCENARIO, Says(call("reply", text="a"), "bye")))
    assert t.steps[0].result == "error: there is no tool 'reply'; there are say_train-0"


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        (["find"], "expected a list of Tool"),
        ([art.Tool(name="a", description="", parameters=TEXT)] * 2, "two tools with the name 'a'"),
        ([art.Tool(name="a", description="", parameters={"x": float("nan")})], ""),
    ],
)
def test_tools_that_are_none_are_a_counted_failure(tools: list[Any], why: str) -> None:
    class Wrong(Given):
        def tools(self) -> list[art.Tool]:
            return tools

    t = asyncio.run(rollout(Wrong, None, SCENARIO, Says("bye")))
    assert t.reward is None and t.error and why in t.error


def test_a_marked_method_that_hides_one_of_env_is_refused_with_what_to_do() -> None:
    class Hides(art.Env):
        @art.tool()
        def reply(self, text: str) -> str:  # type: ignore[override]
            """Answer."""
            return text

    advice = r'test_tools_of_an_episode.py:\d+: .*another name.*@tool\(name="reply"\)'
    with pytest.raises(UsageError, match=advice):
        tools_of(Hides)


def test_demonstrations_can_use_them() -> None:
    turns = iter([call("say_train-0", text="end")])
    assert play_episode(Given(SCENARIO, None), lambda: next(turns)).reward == 1.0


def test_the_policy_reads_them_in_its_prompt() -> None:
    from art_cli.rollout.policy_agent import PolicyAgent

    renderer = next(iter(BY_NAME.values())).renderer([])
    agent = PolicyAgent(renderer, lambda: None, 4096)  # type: ignore[arg-type, return-value]
    agent.offer([art.Tool(name="say_it", description="Say.", parameters=TEXT).schema()])
    agent.conversation.add_messages([{"role": "user", "content": "hi"}], "", 4096)
    assert "say_it" in renderer._tokenizer.decode(agent.conversation.ids)
    assert renderer.tools == []
