"""Whatever a server sends: an answer that can be used, or a failure with its reason."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fuzz import any_json, any_scalar, any_text, broken, fuzz, nested
from hypothesis import given
from hypothesis import strategies as st
from loopback_judge import Answer as Sent
from loopback_judge import completion

from art_cli.chat.turns import parse_tool_calls
from art_cli.llms.answer import Answer, BadAnswer
from art_cli.llms.base import Reply
from art_cli.llms.openai_server import ErrorAnswer, read_response
from art_cli.llms.prices import Rates
from art_cli.rollout.agents.prompted import turn_text

ASKED = [{"role": "user", "content": "2 + 2?"}]
RATES = Rates(read=1e-6, written=4e-6, longest=100)


def read(body: Any, status: int = 200) -> Reply:
    """What becomes of a body; raises ErrorAnswer or BadAnswer, and nothing else."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = read_response(httpx.Response(status, content=content))
    return checked(answer)


def checked(answer: Answer) -> Reply:
    """The reply, which must be such that it can be stored, shown, paid for and sent back."""
    usd = RATES.price(ASKED, answer)
    assert 0 < usd < 1e3
    reply = answer.reply(usd)
    json.dumps(reply.message, allow_nan=False, ensure_ascii=False).encode()  # as httpx does
    (reply.text + turn_text(reply)).encode()
    assert all(isinstance(call.arguments, str) for call in reply.calls)
    assert 0 <= reply.num_read <= 10**7 and 0 <= reply.num_written <= 10**7
    return reply


def refused(body: Any) -> str:
    with pytest.raises(BadAnswer) as raised:
        read(body)
    return str(raised.value)


def saying(content: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": content, **more}}]}


def test_text_may_come_in_parts() -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "text", "text": "2"}]
    assert read(saying(parts)).text == "42"
    thought = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "4"}]
    assert read(saying(thought)).text == "4"
    assert read(saying(None)).text == ""


@pytest.mark.parametrize("content", [5, 0.5, True, {"text": "4"}, ["4"], [{"type": "text"}]])
def test_content_that_is_no_text_is_no_answer(content: Any) -> None:
    assert "expected text as the content of the answer, got" in refused(saying(content))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<html><body>502 Bad Gateway</body></html>",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"choices": ' + b"9" * 5000 + b"}",
        b"[]",
        b"null",
        {},
        {"choices": []},
        {"choices": {"0": 1}},
        {"choices": [None]},
        {"choices": [{"message": "4"}]},
        {"choices": [{"text": "4"}]},
        saying("4", tool_calls={"function": 1}),
        saying("4", tool_calls=["look"]),
        saying("4", tool_calls=[{"function": {"arguments": "{}"}}]),
    ],
)
def test_what_is_no_answer_is_told_in_words(body: Any) -> None:
    assert refused(body).startswith("expected ")


@pytest.mark.parametrize("depth", [500, 700, 900, 960, 3000])
def test_no_depth_is_too_much(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    refused(f'{{"choices": [{{"message": {{"content": {deep}}}}}]}}'.encode())
    name = f'{{"name": "look", "arguments": {json.dumps(deep)}}}'
    body = f'{{"choices": [{{"message": {{"tool_calls": [{{"function": {name}}}]}}}}]}}'
    assert read(body.encode()).calls[0].arguments == deep


def test_an_error_in_a_good_response_is_an_error() -> None:
    with pytest.raises(ErrorAnswer, match=r"HTTP 429: .*slow down") as raised:
        read({"error": {"message": "slow down", "code": 429}})
    assert raised.value.status_code == 429
    with pytest.raises(ErrorAnswer) as raised:
        read({"error": "out of order"})
    assert raised.value.status_code == 500


def test_half_of_a_surrogate_pair_is_replaced() -> None:
    call = {"id": "\udfff", "function": {"name": "\ud800", "arguments": '{"a": "\ud800"}'}}
    reply = read(saying("4\ud800", tool_calls=[call]))
    assert reply.text == "4?" and reply.calls[0].arguments == '{"a": "?"}'


def test_half_of_a_pair_that_is_spelt_out_stays_so_and_no_call_is_made() -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": '{"at": "\\ud800"}'}}
    text = turn_text(read(saying("", tool_calls=[call])))
    assert text.encode() and "\\ud800" in text
    [refused] = parse_tool_calls(text)
    assert isinstance(refused, str) and "half a surrogate pair" in refused


def test_arguments_may_come_as_an_object() -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": {"at": 1}}}
    assert read(saying(None, tool_calls=[call])).calls[0].arguments == '{"at": 1}'


deep = st.sampled_from([500, 600, 700, 800, 900, 950, 980]).map(nested)
odd = st.one_of(any_scalar, any_json, deep)
calls = st.fixed_dictionaries(
    {},
    optional={
        "id": odd,
        "function": odd
        | st.fixed_dictionaries({"name": odd | any_text}, optional={"arguments": odd | any_text}),
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "role": odd,
        "content": odd | any_text | st.lists(st.fixed_dictionaries({"text": any_text | odd})),
        "tool_calls": odd | st.lists(odd | calls, max_size=3),
        "reasoning_content": odd,
    },
)
usages = st.fixed_dictionaries({}, optional={"prompt_tokens": odd, "completion_tokens": odd})
choices = st.fixed_dictionaries({}, optional={"message": odd | messages, "finish_reason": odd})
bodies = st.fixed_dictionaries(
    {"choices": odd | st.lists(odd | choices, min_size=1, max_size=2)},
    optional={"usage": odd | usages, "error": odd},
)
GOOD = json.dumps(completion({"model": "x"}, Sent(text="4", calls=(("look", '{"at": 1}'),))))


@fuzz(1500)
@given(
    st.one_of(
        bodies,
        bodies,
        odd,
        broken(GOOD).map(lambda text: text.encode("utf-8", "replace")),
        st.binary(max_size=60),
    )
)
def test_any_body_is_an_answer_or_a_failure_with_a_reason(body: Any) -> None:
    try:
        read(body)
    except (BadAnswer, ErrorAnswer) as e:
        assert str(e)
