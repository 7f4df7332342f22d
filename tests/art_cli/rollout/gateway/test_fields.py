"""Every field of the vendors' requests is served, said to have no effect, or refused."""

from __future__ import annotations

import asyncio
import json
import runpy
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import message_create_params as anthropic_params
from anthropic.types.beta import message_create_params as beta_params
from hosted import host, script
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from art_cli.rollout.gateway.apis.chat import ChatApi, ChatRequest
from art_cli.rollout.gateway.apis.completions import CompletionsApi, CompletionsRequest
from art_cli.rollout.gateway.apis.fields import REFUSED, UNUSED
from art_cli.rollout.gateway.apis.messages.api import MessagesApi, MessagesRequest
from art_cli.rollout.gateway.apis.responses.api import ResponsesApi, ResponsesRequest
from art_cli.rollout.gateway.apis.responses.store import ResponseStore
from art_cli.rollout.gateway.asked import RequestError

ROOT = Path(__file__).parents[4]
SAID = {"messages": [{"role": "user", "content": "a"}]}
APIS: dict[str, tuple[Any, Any, list[Any], dict[str, Any]]] = {
    "chat": (ChatApi, ChatRequest, [chat_params.CompletionCreateParamsBase], SAID),
    "responses": (
        lambda: ResponsesApi(ResponseStore()),
        ResponsesRequest,
        [responses_params.ResponseCreateParamsBase],
        {"input": "a"},
    ),
    "messages": (
        MessagesApi,
        MessagesRequest,
        [anthropic_params.MessageCreateParamsBase, beta_params.MessageCreateParamsBase],
        SAID | {"max_tokens": 9},
    ),
    "completions": (
        CompletionsApi,
        CompletionsRequest,
        [completion_params.CompletionCreateParamsBase],
        {"prompt": "a"},
    ),
}


@pytest.mark.parametrize("api", APIS)
def test_every_field_of_the_vendors_package_is_known(api: str) -> None:
    """Of the versions that docs/agent-apis.md names: a newer one may have more."""
    package, version = (anthropic, "2.14.") if api == "messages" else (openai, "3.57.")
    if not package.__version__.startswith(version):
        pytest.skip(f"{package.__name__} is {package.__version__}; the table is of {version}x")
    _, model, types, _ = APIS[api]
    bases = [base for each in types for base in each.__mro__]
    theirs = {name for base in bases for name in vars(base).get("__annotations__", ())}
    known = {*model.model_fields, *UNUSED[api], *REFUSED[api]}
    assert theirs - known == set()
    assert not set(model.model_fields) & {*UNUSED[api], *REFUSED[api]}
    assert not set(UNUSED[api]) & set(REFUSED[api])


def test_the_table_in_the_docs_is_that_of_the_script() -> None:
    table = runpy.run_path(str(ROOT / "scripts" / "api_fields.py"))["table"]
    assert (ROOT / "docs" / "agent-apis.md").read_text(encoding="utf-8").endswith(table())


@pytest.mark.parametrize(("api", "field"), [(api, f) for api in APIS for f in REFUSED[api]])
def test_what_would_change_an_answer_is_refused_unless_it_is_empty(api: str, field: str) -> None:
    make, _, _, least = APIS[api]

    def read(value: Any) -> None:
        make().read(json.dumps(least | {field: value}).encode())

    with pytest.raises(RequestError, match=f"{field}: this is not offered here; ") as raised:
        read([{"x": 1}])
    assert raised.value.status == 400
    for empty in (None, [], {}, False, ""):
        read(empty)


@pytest.mark.parametrize(("api", "field"), [(api, f) for api in APIS for f in UNUSED[api]])
def test_what_has_no_effect_is_accepted(api: str, field: str) -> None:
    make, _, _, least = APIS[api]
    question = make().read(json.dumps(least | {field: "x"}).encode())
    assert question.asked.raw == "a" or question.asked.messages == SAID["messages"]
    assert question.asked.unknown == ()


def test_a_field_that_asks_for_what_there_is_is_accepted() -> None:
    ChatApi().read(json.dumps(SAID | {"modalities": ["text"], "function_call": "none"}).encode())


# As real clients send them: more than that they are there.
REAL: list[tuple[str, str, Any]] = [
    ("chat", "functions", [{"name": "look", "parameters": {"type": "object"}}]),
    ("chat", "function_call", "auto"),
    ("chat", "function_call", {"name": "look"}),
    ("chat", "web_search_options", {"search_context_size": "low"}),
    ("chat", "modalities", ["text", "audio"]),
    ("chat", "modalities", ["audio"]),
    ("chat", "modalities", "audio"),
    ("chat", "audio", {"voice": "alloy", "format": "wav"}),
    ("chat", "logit_bias", {"50256": -100}),
    ("chat", "logit_bias", {"50256": 0, "7": "x"}),
    ("responses", "conversation", {"id": "conv_1"}),
    ("responses", "background", True),
    ("responses", "prompt", {"id": "pmpt_1"}),
    ("messages", "mcp_servers", [{"type": "url", "name": "a", "url": "https://example.com"}]),
    ("messages", "container", "container_1"),
    ("messages", "container", {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}),
    ("completions", "echo", True),
    ("completions", "suffix", "."),
    ("completions", "logit_bias", {"50256": -100}),
]


@pytest.mark.parametrize(("api", "field", "value"), REAL, ids=str)
def test_a_real_value_of_a_refused_field_is_refused(api: str, field: str, value: Any) -> None:
    make, _, _, least = APIS[api]
    with pytest.raises(RequestError, match=f"{field}: this is not offered here; "):
        make().read(json.dumps(least | {field: value}).encode())


@pytest.mark.parametrize(
    ("api", "field", "value"),
    [
        ("responses", "max_tool_calls", 0),
        ("responses", "max_tool_calls", "many"),
        ("responses", "context_management", [{"type": "compaction", "compact_threshold": 10}]),
        ("messages", "context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]}),
    ],
)
def test_a_real_value_of_a_field_without_effect_is_accepted(
    api: str, field: str, value: Any
) -> None:
    make, _, _, least = APIS[api]
    assert make().read(json.dumps(least | {field: value}).encode()).asked.unknown == ()


@pytest.mark.parametrize("api", APIS)
def test_fields_that_nothing_reads_are_named(api: str) -> None:
    make, _, _, least = APIS[api]

    def unknown(fields: dict[str, Any]) -> tuple[str, ...]:
        return make().read(json.dumps(least | fields).encode()).asked.unknown

    assert unknown({"foo": 1, "x" * 999: [2], "bar": None}) == ("foo", "x" * 100)
    assert len(unknown({f"f{i}": 1 for i in range(10**4)})) == 20


def test_a_run_says_once_which_fields_nothing_reads(make_policy: Any) -> None:
    policy, said = make_policy(), list[str]()

    async def agent(client: Any, task: Any) -> None:
        for more in ({"foo": 1}, {"foo": 2, "enable_thinking": False}):
            messages: Any = [{"role": "user", "content": "a"}]
            create = client.chat.completions.create
            await create(model="m", messages=messages, extra_body=more)

    engine = script(policy, "a", "b", "c", "d")
    t = asyncio.run(host(policy, engine, agent, say=said.append, times=2))
    told = "the agent sent fields that nothing reads: 'foo' (2x), 'enable_thinking' (1x); "
    assert [line for line in t.logs if line.startswith(told)] and len(said) == 1
    assert said[0].startswith(f"warning: {told}docs/agent-apis.md")
