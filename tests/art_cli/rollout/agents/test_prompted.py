"""A model behind an API plays: its calls in our form for the env, in its own form for itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from loopback_judge import Answer, LoopbackJudge, refused, says

import art_cli as art
from art_cli.chat.turns import parse_tool_calls, spoken
from art_cli.config.sections.llm import LLMConfig, PricesConfig
from art_cli.envs.tools import schemas_of
from art_cli.llms.base import NativeCall, Reply
from art_cli.llms.remote import RemoteLLM
from art_cli.rollout.agents.prompted import PromptedAgents, turn_text
from art_cli.rollout.rollout import rollout
from art_cli.types import Message, Scenario, Trajectory


class Lamp(art.Env):
    """Turn the lamp on."""

    system = "You are a switch."
    max_turns = 4

    async def start(self) -> str | list[Message]:
        self.on = False
        return "Light, please."

    @art.tool(writes=True)
    async def switch(self, on: bool) -> str:
        """Switch the lamp."""
        self.on = on
        return f"on: {on}"

    async def score(self, trajectory: Trajectory) -> float:
        return float(self.on)


class Words(art.Env):
    """Without tools."""

    async def start(self) -> str:
        return "Say hello."

    async def score(self, trajectory: Trajectory) -> float:
        return float("hello" in trajectory.messages[-1]["content"])


def played(server: LoopbackJudge, env: type[art.Env] = Lamp, **settings: Any) -> Trajectory:
    cfg = LLMConfig(model=server.model, api_base=server.api_base, retries=0, **settings)

    async def go() -> Trajectory:
        llm = RemoteLLM(cfg)
        try:
            agent = PromptedAgents(llm, schemas_of(env)).open(0)
            return await rollout(env, None, Scenario(id="x", split="val", seed=0), agent)
        finally:
            await llm.close()

    return asyncio.run(go())


def calling(*calls: tuple[str, str], text: str = "", finish: str = "stop") -> Any:
    return lambda ask: Answer(text=text, calls=calls, finish=finish)


ON = ("switch", '{"on": true}')


@pytest.mark.parametrize("model", ["openai/loopback", "hosted_vllm/loopback"])
def test_native_calls_reach_the_env_and_go_back_with_their_ids(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoopbackJudge, "model", model)
    with LoopbackJudge(calling(ON, ON, text="One moment."), says("done")) as server:
        t = played(server, prices=PricesConfig(input=10, output=100))
        first, second = server.asked
    assert t.reward == 1.0 and t.stop_reason == "env"
    call = '<tool_call>{"name": "switch", "arguments": {"on": true}}</tool_call>'
    assert t.messages[2]["content"] == f"One moment.{call}{call}"
    assert [m["content"] for m in t.messages[3:]] == ["on: True", "on: True", "done"]
    assert first.body["tools"] == schemas_of(Lamp)
    assert [m["role"] for m in first.messages] == ["system", "user"]
    assistant, *results = second.messages[2:]
    assert [c["id"] for c in assistant["tool_calls"]] == ["c0", "c1"]
    assert [(r["role"], r["tool_call_id"]) for r in results] == [("tool", "c0"), ("tool", "c1")]
    assert (t.num_turns, t.num_written, t.sequences) == (2, 200, [])
    assert t.usd == pytest.approx(2 * (1000 * 10 + 100 * 100) / 1e6)


def test_broken_arguments_are_an_observation() -> None:
    with LoopbackJudge(calling(("switch", '{"on": tru')), calling(ON), says("done")) as server:
        t = played(server)
        assert server.asked[1].messages[-1]["tool_call_id"] == "c0"
    assert t.reward == 1.0
    assert t.messages[3]["content"].startswith("error: the tool call is not valid JSON")


def test_a_turn_that_was_cut_off_calls_nothing() -> None:
    with LoopbackJudge(calling(ON, finish="length"), says("done")) as server:
        t = played(server)
        assert server.asked[1].messages[-1]["tool_call_id"] == "c0"
    assert (t.reward, t.truncated) == (0.0, True)
    assert t.messages[3]["content"].startswith("error: the turn was cut off")


def test_a_server_that_leaves_calls_in_the_text_is_understood() -> None:
    call = f'<tool_call>{{"name": "{ON[0]}", "arguments": {ON[1]}}}</tool_call>'
    with LoopbackJudge(says(f"ok {call}"), says("done")) as server:
        t = played(server)
        assistant, result = server.asked[1].messages[2:]
    assert t.reward == 1.0
    assert (assistant["content"], assistant["tool_calls"][0]["id"]) == ("ok", "call00001")
    assert result == {"role": "tool", "tool_call_id": "call00001", "content": "on: True"}


def test_without_tools_none_are_offered() -> None:
    with LoopbackJudge(says("hello")) as server:
        assert played(server, Words).reward == 1.0
        assert "tools" not in server.asked[0].body


def test_a_model_that_does_not_answer_is_infrastructure_and_no_zero() -> None:
    with LoopbackJudge(calling(ON), refused(500, "no luck")) as server:
        t = played(server)
    assert t.failed and t.reward is None and "no luck" in str(t.error)


def test_a_conversation_that_is_too_long_ends_and_is_scored() -> None:
    class Talks(Lamp):
        async def reply(self, text: str) -> str:
            return "go on"

    with LoopbackJudge(calling(ON), then=says("well")) as server:  # 1000 tokens read each time
        t = played(server, Talks, max_input_tokens=1150)
    assert (t.stop_reason, t.truncated, t.reward) == ("context", True, 1.0)


def test_an_opening_with_turns_in_it_is_sent_in_openais_form() -> None:
    opened: list[Message] = [
        {"role": "user", "content": "Light."},
        {"role": "assistant", "content": '<tool_call>{"name": "switch", "arguments": {}}'},
        {"role": "tool", "content": "error: invalid arguments"},
    ]

    class Opened(Lamp):
        async def start(self) -> list[Message]:
            self.on = False
            return opened

    with LoopbackJudge(says("sorry")) as server:
        played(server, Opened)
        _, assistant, result = server.asked[0].messages
    assert assistant["tool_calls"][0]["function"] == {"name": "switch", "arguments": "{}"}
    assert result["tool_call_id"] == assistant["tool_calls"][0]["id"]


@pytest.mark.parametrize("said", ["</tool_call>", "<think>", "a</think>b", "ü <tool_call>{}"])
def test_what_is_said_in_arguments_is_never_taken_for_the_form(said: str) -> None:
    call = NativeCall(id="1", name="say", arguments=json.dumps({"text": said}))
    text = turn_text(Reply(text=f"about {said.replace('think', 'thin')}", calls=(call, call)))
    assert parse_tool_calls(spoken(text)) == [{"name": "say", "arguments": {"text": said}}] * 2
