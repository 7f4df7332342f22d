"""Which of an agent's calls is its play: whatever else it asks the policy, its answer is heard."""

import asyncio
import json
from typing import Any

import pytest
from hosted import Shop, host, script

from art_cli.rollout.agents.function import Task
from art_cli.types import Trajectory

SELL = '<tool_call>{"name": "sell", "arguments": {"item": "mug"}}</tool_call>'
OPENING = [{"role": "system", "content": "You sell."}, {"role": "user", "content": "I want a mug."}]


@pytest.fixture
def play(make_policy: Any) -> Any:
    """Play an episode with a function; the policy says the given texts."""
    policy = make_policy()

    def play(agent: Any, *texts: Any, **more: Any) -> Trajectory:
        return asyncio.run(host(policy, script(policy, *texts), agent, **more))

    return play


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def tool(name: str) -> dict[str, Any]:
    function = {"name": name, "description": "x", "parameters": {"type": "object"}}
    return {"type": "function", "function": function}


async def ask(client: Any, messages: list[Any], tools: list[Any] | None = None, **more: Any) -> Any:
    """One turn; it is added to the messages."""
    if tools:
        more["tools"] = tools
    answer = await client.chat.completions.create(model="m", messages=messages, **more)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    return message


async def turn(client: Any, task: Task, messages: list[Any], own: tuple[str, ...] = ()) -> Any:
    """One turn of a plain agent, whose calls of the env are made."""
    message = await ask(client, messages, [*task.tools, *map(tool, own)])
    for made in message.tool_calls or []:
        result = "ok"
        if made.function.name not in own:
            result = await task.call_tool(made.function.name, json.loads(made.function.arguments))
        messages.append({"role": "tool", "tool_call_id": made.id, "content": result})
    return message


async def side(client: Any, system: str, text: str) -> str:
    """A call beside the play."""
    messages = [{"role": "user", "content": text}]
    if system:
        messages.insert(0, {"role": "system", "content": system})
    return (await ask(client, messages)).content


def heard(trajectory: Trajectory) -> list[str]:
    return [step.said for step in trajectory.steps if step.tool is None]


@pytest.mark.parametrize("system", ["You guard.", ""])
def test_a_guardrail_and_a_title_are_not_the_answer(play: Any, system: str) -> None:
    async def agent(client: Any, task: Task) -> None:
        await side(client, system, "I want a mug.")
        await turn(client, task, task.messages)
        said = await turn(client, task, task.messages)
        await side(client, system, f"Is this fine? {said.content}")
        await ask(client, [*task.messages, {"role": "user", "content": "A title, please."}])

    trajectory = play(agent, "no harm", SELL, "sold", "fine", "A mug")
    assert heard(trajectory) == ["sold"]
    assert [m["role"] for m in trajectory.messages] == [*ROLES, "assistant", "tool", "assistant"]
    assert len(trajectory.side_conversations) == 3 and trajectory.num_turns == 2


ROLES = ["system", "user"]


def test_a_planner_before_each_turn_is_no_turn_of_the_envs(play: Any) -> None:
    class Tight(Shop):
        max_turns = 2

    async def agent(client: Any, task: Task) -> None:
        for _ in range(2):
            plan = await side(client, "You plan.", str(task.messages))
            task.messages.append({"role": "user", "content": plan})
            await turn(client, task, task.messages)

    trajectory = play(agent, "sell it", SELL, "say so", "sold", env=Tight)
    assert heard(trajectory) == ["sold"] and trajectory.reward == pytest.approx(1.1)
    assert (trajectory.num_turns, trajectory.num_calls) == (2, 4)


def test_calls_of_one_turn_are_one_turn_of_the_envs(play: Any) -> None:
    both = SELL + call("price", item="mug")
    trajectory = play(agent_of_turns(2), both, "sold")
    assert [s.turn for s in trajectory.steps] == [0, 0, 1] and trajectory.num_turns == 2


def agent_of_turns(num: int, own: tuple[str, ...] = ()) -> Any:
    async def agent(client: Any, task: Task) -> None:
        for _ in range(num):
            await turn(client, task, task.messages, own)

    return agent


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (call("final_result", response="sold"), "sold"),
        (call("final_result_Sale", item="mug", ok=True), '{"item":"mug","ok":true}'),
        (call("final_answer", answer="sold"), "sold"),
        (call("answer", count=3), '{"count":3}'),
    ],
)
def test_a_call_of_a_frameworks_answer_tool_is_the_answer(
    play: Any, said: str, answer: str
) -> None:
    name = json.loads(said[11:-12])["name"]
    assert heard(play(agent_of_turns(2, (name,)), SELL, said)) == [answer]


def test_another_tool_is_the_answer_only_where_the_config_says_so(play: Any) -> None:
    agent, said = agent_of_turns(2, ("done", "final_answer")), call("done", text="sold")
    assert heard(play(agent, SELL, said)) == []
    assert heard(play(agent, SELL, said, answer_tool="done")) == ["sold"]
    assert heard(play(agent, SELL, call("final_answer", a="b"), answer_tool="done")) == []


def test_a_tool_of_the_envs_own_is_no_answer(play: Any) -> None:
    assert heard(play(agent_of_turns(2), "One moment", SELL)) == []
    assert heard(play(agent_of_turns(1), SELL, answer_tool="sell")) == []


def test_words_before_a_tool_of_the_agents_own_are_the_answer(play: Any) -> None:
    saved = call("save_note", text="a mug")
    assert heard(play(agent_of_turns(3, ("save_note",)), SELL, "sold", saved)) == ["sold"]


def test_a_compacted_history_is_the_same_conversation(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await turn(client, task, task.messages)
        summary = await side(client, "You summarise.", str(task.messages))
        messages = [OPENING[0], {"role": "user", "content": f"So far: {summary}"}]
        await turn(client, task, messages)

    trajectory = play(agent, SELL, "it is sold", "sold")
    assert heard(trajectory) == ["sold"]
    said = [m["content"] for m in trajectory.messages]
    assert said[:2] == ["You sell.", "I want a mug."] and said[-2:] == [
        "So far: it is sold",
        "sold",
    ]
    assert len(said) == 5 and said.count("You sell.") == 1


def test_a_handoff_goes_on_with_the_conversation(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await turn(client, task, task.messages, ("transfer_to_seller",))
        other = [{"role": "system", "content": "You close sales."}, *task.messages[1:]]
        await turn(client, task, other)
        await turn(client, task, other)

    trajectory = play(agent, call("transfer_to_seller"), SELL, "sold")
    assert heard(trajectory) == ["sold"] and trajectory.num_turns == 2


def test_who_asks_a_sub_agent_gives_the_answer(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        tools = [tool("ask_seller")]
        message = await ask(client, task.messages, tools)
        inner = [{"role": "system", "content": "You close sales."}, OPENING[1]]
        await turn(client, task, inner)
        result = (await turn(client, task, inner)).content
        id = message.tool_calls[0].id
        task.messages.append({"role": "tool", "tool_call_id": id, "content": result})
        await ask(client, task.messages, tools)

    trajectory = play(agent, call("ask_seller", text="a mug"), SELL, "one mug went", "sold")
    assert heard(trajectory) == ["sold"] and trajectory.messages[0]["content"] == "You sell."


def test_without_an_envs_tool_it_is_what_began_with_the_scenario(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        await side(client, "You plan.", "What may be wanted?")
        await ask(client, task.messages)
        await side(client, "You title.", "I want a mug. sold")

    assert heard(play(agent, "a plan", "sold", "A mug")) == ["sold"]


def test_each_turn_of_a_rewritten_history_is_shown_once(play: Any) -> None:
    async def agent(client: Any, task: Task) -> None:
        said: list[Any] = []
        for hour in range(3):
            clock = {"role": "system", "content": f"It is {hour} o'clock."}
            messages = [clock, OPENING[1], *said]
            await turn(client, task, messages)
            said = messages[2:]

    price = call("price", item="mug")
    trajectory = play(agent, price, SELL, "sold")
    assert len(trajectory.sequences) == 3 and heard(trajectory) == ["sold"]
    roles = [m["role"] for m in trajectory.messages]
    assert roles == [*ROLES, "assistant", "tool", "assistant", "tool", "assistant"]


def test_structured_words_are_heard_as_what_they_say(play: Any) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}

    async def agent(client: Any, task: Task) -> None:
        await ask(client, task.messages, response_format=wanted)

    assert heard(play(agent, '{"answer": "sold"}')) == ["sold"]
