"""Tools that a client runs, of every type: called as its vendor's models do, in one sequence."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import pytest
from hosted import host, script

from art_cli.rollout.agents.function import Task
from art_cli.rollout.gateway.apis.chat import ChatApi
from art_cli.rollout.gateway.apis.messages.api import MessagesApi
from art_cli.rollout.gateway.apis.responses.api import ResponsesApi
from art_cli.rollout.gateway.apis.responses.store import ResponseStore
from art_cli.rollout.gateway.apis.responses.tools import PUBLISHED, RequestTool, client_tools
from art_cli.rollout.gateway.asked import Asked, RequestError
from art_cli.types import Trajectory

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /SELECT .+/"}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "namespace",
        "name": "crm",
        "description": "The customers.",
        "tools": [
            {"type": "function", "name": "find", "parameters": {"type": "object"}},
            {"type": "custom", "name": "note"},
        ],
    },
    {"type": "custom", "name": "sql", "description": "Ask the database.", "format": GRAMMAR},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "function", "name": "now"},
]
NOTE: dict[str, Any] = {"name": "note"}
PATCH = {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b\n"}
CALLS: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [  # of the policy, its item, result
    (
        "crm__find",
        {"name": "Ann"},
        {"type": "function_call", "namespace": "crm", "name": "find"},
        "customer 7",
    ),
    (
        "crm__note",
        {"input": "called"},
        {"type": "custom_tool_call", "namespace": "crm", "name": "note", "input": "called"},
        [{"type": "input_text", "text": "noted"}],
    ),
    (
        "sql",
        {"input": "SELECT 1"},
        {"type": "custom_tool_call", "name": "sql", "input": "SELECT 1"},
        "1",
    ),
    (
        "shell",
        {"commands": ["ls", "pwd"], "timeout_ms": 9},
        {"type": "shell_call"},
        [
            {"stdout": "a.py\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
            {"stdout": "", "stderr": "no", "outcome": {"type": "timeout"}},
        ],
    ),
    ("local_shell", {"command": ["ls"]}, {"type": "local_shell_call"}, "a.py"),
    ("apply_patch", PATCH, {"type": "apply_patch_call"}, "done"),
    ("now", {}, {"type": "function_call", "name": "now"}, "noon"),
]
RESULTS = {
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "function_call": "function_call_output",
}


def written(name: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.fixture
def play(make_policy: Any) -> Any:
    policy = make_policy()

    def play(agent: Any, *texts: str) -> Trajectory:
        return asyncio.run(host(policy, script(policy, *texts), agent))

    play.policy = policy
    return play


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("name", "arguments", "item", "output"), CALLS, ids=lambda v: str(v)[:12])
def test_a_call_is_the_item_that_its_client_expects_and_goes_on_in_one_sequence(
    play: Any, name: str, arguments: Any, item: dict[str, Any], output: Any, streams: bool
) -> None:
    async def agent(client: Any, task: Task) -> None:
        asked: dict[str, Any] = {"model": "m", "tools": TOOLS, "store": False}
        said: list[Any] = [{"role": "user", "content": "help"}]
        if streams:
            async with client.responses.stream(**asked, input=said) as stream:
                async for _ in stream:
                    pass
                first = await stream.get_final_response()
        else:
            first = await client.responses.create(**asked, input=said)
        [call] = first.output
        found = call.model_dump(exclude_none=True)
        assert item.items() <= found.items()
        if name == "shell":
            assert found["action"] == {"commands": ["ls", "pwd"], "timeout_ms": 9}
        if name == "apply_patch":
            assert found["operation"] == PATCH
        result: dict[str, Any] = {"type": RESULTS[call.type], "output": output}
        key = "id" if call.type == "local_shell_call" else "call_id"
        result[key] = call.call_id
        if call.type == "apply_patch_call":
            result["status"] = "completed"
        sent = call.model_dump(exclude_none=True)
        second = await client.responses.create(**asked, input=[*said, sent, result])
        assert second.output_text == "bye"

    t = play(agent, written(name, arguments), "bye")
    assert t.error is None, t.logs
    [sequence] = t.sequences
    told = play.policy.tokenizer.decode(sequence.ids)
    assert "SELECT .+" in told and "The customers." not in told
    wanted = {"shell": "a.py\n[exit code 0]", "crm__note": "noted"}.get(name, str(output))
    assert wanted in told


@pytest.mark.parametrize("streams", [False, True])
def test_a_custom_tool_of_chat_completions_is_called_with_text(play: Any, streams: bool) -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /SELECT .+/"}}
    custom = {"name": "sql", "description": "Ask the database.", "format": grammar}
    tools: list[Any] = [{"type": "custom", "custom": custom}, {"type": "custom", "custom": NOTE}]

    async def agent(client: Any, task: Task) -> None:
        said: list[Any] = [{"role": "user", "content": "help"}]
        asked: dict[str, Any] = {"model": "m", "tools": tools}
        if streams:
            stream = await client.chat.completions.create(**asked, messages=said, stream=True)
            pieces = [piece.choices[0].delta async for piece in stream]
            deltas = [each for piece in pieces for each in piece.tool_calls or []]
            assert {d.index for d in deltas} == {0} and deltas[0].type == "custom"
            name = deltas[0].custom["name"]
            call: Any = {"id": deltas[0].id, "type": "custom"}
            call["custom"] = {"name": name, "input": "".join(d.custom["input"] for d in deltas)}
        else:
            first = await client.chat.completions.create(**asked, messages=said)
            assert first.choices[0].finish_reason == "tool_calls"
            [called] = first.choices[0].message.tool_calls
            call = called.model_dump()
        assert call["custom"] == {"name": "sql", "input": "SELECT 1"}
        said += [{"role": "assistant", "tool_calls": [call]}]
        said += [{"role": "tool", "tool_call_id": call["id"], "content": "1"}]
        second = await client.chat.completions.create(**asked, messages=said)
        [called] = second.choices[0].message.tool_calls
        assert called.custom.name == "note" and called.custom.input == '{"text": "one"}'

    noted = written("note", {"text": "one"})  # arguments that it has not are not lost
    t = play(agent, written("sql", {"input": "SELECT 1"}), noted)
    assert t.error is None, t.logs
    [sequence] = t.sequences
    told = play.policy.tokenizer.decode(sequence.ids)
    assert "Ask the database.\n\nThe input follows this lark grammar:" in told


def test_a_custom_tool_of_chat_completions_that_is_none_is_refused() -> None:
    def custom(**more: Any) -> dict[str, Any]:
        return {"type": "custom", "custom": NOTE | more}

    said = [{"role": "user", "content": "help"}]
    note = custom()
    call: dict[str, Any] = {"id": "1", **custom(input=7)}
    wrong: list[tuple[str, dict[str, Any]]] = [
        (r"tools\.0\.custom: Field required", {"tools": [{"type": "custom"}]}),
        (r"tools\.1\.function: Field required", {"tools": [note, {**note, "type": "function"}]}),
        (r"tools\.0\.custom\.name: ", {"tools": [custom(name="")]}),
        (r"tools\.0\.custom\.format\.type: ", {"tools": [custom(format={})]}),
        ("two tools are called 'note'", {"tools": [note, {"type": "function", "function": NOTE}]}),
        ("sql is not among the tools", {"tools": [note], "tool_choice": custom(name="sql")}),
        (
            "a custom call with text as input",
            {"tools": [note], "messages": [*said, {"role": "assistant", "tool_calls": [call]}]},
        ),
    ]
    for why, body in wrong:
        with pytest.raises(RequestError, match=why):
            read(ChatApi(), **{"messages": said, **body})
    allowed = {"mode": "required", "tools": [note]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    assert read(ChatApi(), messages=said, tools=[note], tool_choice=choice).forced_tool == "note"
    assert read(ChatApi(), messages=said, tools=[note], tool_choice=note).forced_tool == "note"


def test_two_tools_of_one_name_and_a_tool_without_one_are_refused() -> None:
    def read(*tools: dict[str, Any]) -> None:
        given = {f"tools.{n}": RequestTool(**tool) for n, tool in enumerate(tools)}
        client_tools(given, drops_hosted=False)

    inner = {"type": "function", "name": "b"}
    wrong = (
        ([{"type": "namespace", "name": "a", "tools": [inner]}, {**inner, "name": "a__b"}], "a__b"),
        ([{"type": "custom"}], "tools.0.name: Field required"),
        ([{"type": "namespace", "name": "a", "tools": [{"type": "shell"}]}], "tools.0.tools.0: "),
        ([{"type": "shell", "environment": {"type": "container_auto"}}], "'shell' cannot be used"),
    )
    for tools, why in wrong:
        with pytest.raises(RequestError, match=why):
            read(*tools)
    read(inner, inner)  # said twice, it is one


def read(api: Any, **body: Any) -> Asked:
    return api.read(json.dumps(body).encode()).asked


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ({"type": "function", "name": "crm__find"}, "crm__find"),
        ({"type": "function", "name": "find"}, "crm__find"),
        ({"type": "custom", "name": "sql"}, "sql"),
        ({"type": "shell"}, "shell"),
        ({"type": "apply_patch"}, "apply_patch"),
    ],
)
def test_a_tool_that_is_demanded_is_the_one_that_its_client_names(
    choice: dict[str, Any], shown: str
) -> None:
    api = ResponsesApi(ResponseStore())
    asked = read(api, input="help", tools=TOOLS, tool_choice=choice)
    assert asked.forced_tool == shown and asked.must_call
    some = {"type": "allowed_tools", "mode": "auto", "tools": [choice]}
    [tool] = read(api, input="help", tools=TOOLS, tool_choice=some).tools
    assert tool["function"]["name"] == shown


def test_tools_that_an_item_adds_are_those_of_the_request() -> None:
    api = ResponsesApi(ResponseStore())
    added = {"type": "additional_tools", "role": "developer", "tools": TOOLS[:2]}
    effort = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    said = {"role": "user", "content": "help"}
    body: dict[str, Any] = {"input": [added, said, effort], "tools": TOOLS[-1:]}
    question = api.read(json.dumps(body).encode())
    names = [tool["function"]["name"] for tool in question.asked.tools]
    assert names == ["now", "crm__find", "crm__note", "sql"]
    assert [m["role"] for m in question.asked.messages] == ["user"]
    # One that goes on and adds more is not offered what was known before.
    body["input"] += [said | {"role": "assistant"}, added | {"tools": TOOLS[2:3]}, said]
    assert len(read(api, **body).tools) == 5
    wrong = [
        (added | {"tools": [{"name": "now"}]}, r"input\.1\.tools\.0\.type: Field required"),
        (added | {"tools": None}, r"input\.1\.tools: "),
        (added | {"tools": [{"type": "mcp"}]}, r"input\.1\.tools\.0: a tool of type 'mcp'"),
        (added | {"tools": [{"type": "custom", "name": "now"}]}, "two tools are called 'now'"),
    ]
    for item, why in wrong:
        with pytest.raises(RequestError, match=why):
            read(api, input=[said, item], tools=TOOLS[-1:])


def test_a_deferred_tool_is_shown_where_a_result_refers_to_it() -> None:
    find = {"name": "find", "description": "Find it.", "input_schema": {"type": "object"}}
    search: dict[str, Any] = {"name": "ToolSearch", "input_schema": {"type": "object"}}
    call = {"type": "tool_use", "id": "1", "name": "ToolSearch", "input": {}}
    found = [{"type": "tool_reference", "tool_name": "find"}, {"type": "text", "text": "found"}]
    result = {"type": "tool_result", "tool_use_id": "1", "content": found}
    said: list[Any] = [{"role": "user", "content": "help"}]
    said += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    body: dict[str, Any] = {"max_tokens": 9, "messages": said}
    tools = [search, find | {"defer_loading": True}]
    asked = read(MessagesApi(), **body, tools=tools)
    assert [t["function"]["name"] for t in asked.tools] == ["ToolSearch"]
    definition = '{"name": "find", "description": "Find it.", "parameters": {"type": "object"}}'
    assert asked.messages[-1]["content"] == f"{definition}\n\nfound"
    with pytest.raises(RequestError, match="'find' is not among the tools"):
        read(MessagesApi(), **body, tools=[search])
    with pytest.raises(RequestError, match="'tool_reference' cannot be used"):
        read(MessagesApi(), messages=[{"role": "user", "content": found}], max_tokens=9)
    # Anthropic's own search is left out, and nothing else would find the tool.
    hosted = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    asked = read(MessagesApi(drops_hosted=True), **body, tools=[hosted, *tools])
    assert [t["function"]["name"] for t in asked.tools] == ["ToolSearch", "find"]


def test_what_only_a_vendor_runs_is_refused_or_left_out() -> None:
    now = {"name": "now", "parameters": {}, "input_schema": {"type": "object"}}
    openais: dict[str, Any] = {
        "input": "help",
        "tools": [{"type": "web_search"}, {"type": "mcp"}, {"type": "function", **now}],
    }
    anthropics: dict[str, Any] = {
        "messages": [{"role": "user", "content": "help"}],
        "max_tokens": 9,
        "tools": [{"type": "web_search_20250305", "name": "web_search"}, now],
    }
    for make, body in (
        (lambda drops: ResponsesApi(ResponseStore(), drops_hosted=drops), openais),
        (lambda drops: MessagesApi(drops_hosted=drops), anthropics),
    ):
        with pytest.raises(RequestError, match=r"tools\.0: .*agent\.hosted_tools: drop"):
            read(make(False), **body)
        assert [t["function"]["name"] for t in read(make(True), **body).tools] == ["now"]


@pytest.mark.parametrize(
    ("kind", "name", "arguments"),
    [
        ("bash_20250124", "bash", {"command": "ls"}),
        ("text_editor_20250728", "str_replace_based_edit_tool", {"command": "view", "path": "/a"}),
        ("memory_20250818", "memory", {"command": "view", "path": "/memories"}),
    ],
)
def test_tools_that_anthropics_models_know_have_their_published_arguments(
    play: Any, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    async def agent(client: Any, task: Task) -> None:
        url = str(client.base_url).removesuffix("v1/")
        said: list[Any] = [{"role": "user", "content": "help"}]
        asked: Any = {"model": "m", "max_tokens": 200, "tools": [{"type": kind, "name": name}]}
        async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as claude:
            [call] = (await claude.messages.create(**asked, messages=said)).content
            assert call.type == "tool_use" and (call.name, call.input) == (name, arguments)
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "done"}
            said += [{"role": "assistant", "content": [call.model_dump()]}]
            said += [{"role": "user", "content": [result]}]
            await claude.messages.create(**asked, messages=said)

    t = play(agent, written(name, arguments), "bye")
    assert t.error is None, t.logs
    [sequence] = t.sequences
    assert "command" in play.policy.tokenizer.decode(sequence.ids)


def test_the_published_arguments_are_those_that_items_hold() -> None:
    from openai.types.responses import response_apply_patch_tool_call as patch
    from openai.types.responses import response_function_shell_tool_call as shell

    def known(tool: str) -> set[str]:
        return set(PUBLISHED[tool][1]["properties"])

    assert known("shell") == set(shell.Action.model_fields)
    assert known("apply_patch") == set(patch.OperationUpdateFile.model_fields)
