"""Random lists of the tools that coding agents send, and turns that end in every way."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import StopReason
from fuzz import fuzz
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion import Choice
from openai.types.responses import Response, ResponseStatus
from openai.types.responses.response import IncompleteDetails

from art_cli.llms.base import NativeCall, Reply
from art_cli.rollout.gateway.apis.chat import ChatApi
from art_cli.rollout.gateway.apis.messages.api import MessagesApi
from art_cli.rollout.gateway.apis.responses.api import ResponsesApi
from art_cli.rollout.gateway.apis.responses.store import ResponseStore
from art_cli.rollout.gateway.asked import Answered, AnsweredCall, Asked, RequestError
from art_cli.rollout.gateway.asked_model import ask_model
from art_cli.types import Completion

SAID = [{"role": "user", "content": "hi"}]
NAMES = st.sampled_from(["a", "b", "a__b", "b__a", "shell", "bash", "x.y", "input"])
SCHEMAS = st.sampled_from([None, {}, {"type": "object", "properties": {"ids[]": {}}}])
HOSTED = ("web_search", "file_search", "code_interpreter", "computer_use_preview", "mcp", "odd")


def of(type: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(type), **fields})


leaves = of("function", name=NAMES, parameters=SCHEMAS) | of("custom", name=NAMES)
openais = st.one_of(
    leaves,
    of("namespace", name=NAMES, tools=st.lists(leaves, max_size=3)),
    of("namespace", name=NAMES, tools=st.lists(of("shell"), max_size=1)),
    st.sampled_from([*("shell", "local_shell", "apply_patch"), *HOSTED]).map(lambda t: {"type": t}),
    of("shell", environment=st.sampled_from([{"type": "local"}, {"type": "container_auto"}])),
)
TYPED = ("bash_20250124", "text_editor_20250728", "memory_20250818")
REMOTE = ("web_search_20250305", "code_execution_20250825", "tool_search_tool_bm25", "odd_1")
anthropics = st.one_of(
    st.fixed_dictionaries({"name": NAMES, "input_schema": SCHEMAS}),
    of("custom", name=NAMES, defer_loading=st.booleans()),
    *(of(kind, name=NAMES) for kind in (*TYPED, *REMOTE)),
)


def completion(ended: Any) -> Completion:
    return Completion(token_ids=[], logprobs=[], finish_reason=ended, policy_version=0)


def answered(calls: list[AnsweredCall], ended: Any = "stop", words: str = "", **more: Any) -> Any:
    return Answered(
        words=words,
        calls=tuple(calls),
        ended=ended,
        completion=completion(ended),
        tokens=[],
        likeliest=[],
        num_prompt=3,
        num_written=2,
        **{"thought": "", **more},
    )


def offered(tool: dict[str, Any]) -> list[tuple[Any, Any, Any]]:
    """Return the kind, namespace and name of each tool that this is for the policy."""
    kind = tool["type"]
    if kind == "namespace":
        return [(each["type"], tool["name"], each["name"]) for each in tool["tools"]]
    local = tool.get("environment", {"type": "local"})["type"] == "local"
    if kind in ("shell", "local_shell", "apply_patch"):
        return [(kind, None, None)] if local else []
    return [(kind, None, tool["name"])] if kind in ("function", "custom") else []


@fuzz(400)
@given(st.lists(openais, max_size=6), st.booleans())
def test_each_tool_of_openai_is_offered_once_and_called_by_its_own_name(
    tools: list[dict[str, Any]], drops: bool
) -> None:
    api = ResponsesApi(ResponseStore(), drops_hosted=drops)
    try:
        question = api.read(json.dumps({"input": "hi", "tools": tools}).encode())
    except RequestError as e:
        assert e.status == 400 and "tools" in str(e)
        return
    shown = [tool["function"]["name"] for tool in question.asked.tools]
    expected = list(dict.fromkeys(each for tool in tools for each in offered(tool)))
    assert drops or all(offered(tool) or tool["type"] == "namespace" for tool in tools)
    assert len(set(shown)) == len(shown) == len(expected)
    calls = [AnsweredCall(id=f"c{n}", name=name, arguments={}) for n, name in enumerate(shown)]
    output = question.body([answered(calls)])["output"]
    ends = {"function_call": "function", "custom_tool_call": "custom"}
    found = [
        (ends.get(o["type"], o["type"].removesuffix("_call")), o.get("namespace"), o.get("name"))
        for o in output
        if o["type"] != "message"
    ]
    assert found == expected


@fuzz(400)
@given(st.lists(anthropics, max_size=6), st.booleans())
def test_each_tool_of_anthropic_is_offered_once_or_refused(
    tools: list[dict[str, Any]], drops: bool
) -> None:
    body = {"messages": SAID, "max_tokens": 5, "tools": tools}
    try:
        question = MessagesApi(drops_hosted=drops).read(json.dumps(body).encode())
    except RequestError as e:
        assert e.status == 400 and "tools" in str(e)
        return
    is_remote = [t.get("type") in REMOTE for t in tools]
    assert drops or not any(is_remote)
    searches = any(t.get("type") == "tool_search_tool_bm25" for t in tools)
    kept = [t for t, gone in zip(tools, is_remote, strict=True) if not gone]
    kept = [t for t in kept if searches or not t.get("defer_loading")]
    shown = [tool["function"]["name"] for tool in question.asked.tools]
    assert shown == list(dict.fromkeys(t["name"] for t in kept))
    calls = [AnsweredCall(id=f"c{n}", name=name, arguments={}) for n, name in enumerate(shown)]
    content = question.body([answered(calls)])["content"]
    assert [block["name"] for block in content] == shown


turns = st.builds(
    answered,
    st.lists(st.just(AnsweredCall(id="c1", name="f", arguments={"a": 1})), max_size=2),
    st.sampled_from(["stop", "length"]),
    st.sampled_from(["", "words", " \n"]),
    thought=st.sampled_from(["", "hm"]),
    stop=st.sampled_from([None, "END"]),
)


@fuzz(400)
@given(turns, st.booleans())
def test_a_turn_ends_in_a_way_that_each_package_knows(turn: Answered, logprobs: bool) -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    chat = {
        "messages": SAID,
        "logprobs": logprobs,
        "tools": [{"type": "function", "function": function}],
    }
    told = ChatApi().read(json.dumps(chat).encode()).body([turn])
    ChatCompletion.model_validate(told | {"model": "m"}, strict=True)
    reasons = get_args(Choice.model_fields["finish_reason"].annotation)
    reason = told["choices"][0]["finish_reason"]
    assert reason in reasons and reason == ("tool_calls" if turn.calls else turn.ended)
    body = {"input": "hi", "tools": [{"type": "function", **function}]}
    response = ResponsesApi(ResponseStore()).read(json.dumps(body).encode()).body([turn])
    Response.model_validate(response)
    assert response["status"] in get_args(ResponseStatus)
    assert (response["status"] == "incomplete") == (turn.ended == "length")
    if details := response["incomplete_details"]:
        known = str(IncompleteDetails.model_fields["reason"].annotation)
        assert f"'{details['reason']}'" in known
    body = {"messages": SAID, "max_tokens": 5, "thinking": {"type": "adaptive"}}
    message = MessagesApi().read(json.dumps(body).encode()).body([turn])
    AnthropicMessage.model_validate(message, strict=True)
    assert message["stop_reason"] in get_args(StopReason)
    cut = {"tool_use": True, "max_tokens": turn.ended == "length"}
    assert cut.get(message["stop_reason"], turn.ended == "stop")


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_turn_of_another_model_that_was_cut_off_calls_nothing(is_cut: bool) -> None:
    class Cut:
        name = "m"

        async def ask(self, *_: Any) -> Reply:
            return Reply(
                text="so", cut=is_cut, calls=(NativeCall(id="c", name="f", arguments="{}"),)
            )

    asked = Asked(messages=[{"role": "user", "content": "hi"}], size=9, tools=[])
    turn, _ = asyncio.run(ask_model(Cut(), asked))  # type: ignore[arg-type]
    assert (turn.ended, len(turn.calls)) == (("length", 0) if is_cut else ("stop", 1))
    assert ('<tool_call>{"name": "f"' in turn.words) == is_cut
