"""A body that goes on with an earlier one is read as if there had been none before."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from art_cli.chat.openai_format import Reading, read_messages
from art_cli.rollout.gateway.apis.bodies import Bodies
from art_cli.rollout.gateway.apis.chat import ChatRequest
from art_cli.rollout.gateway.apis.continued import Continued
from art_cli.rollout.gateway.apis.request_body import MAX_MESSAGES, read_as, readings
from art_cli.rollout.gateway.asked import RequestError

HEAD, TAIL = '{"model": "m", "messages": [', '], "max_tokens": 5}'
ONE = '{"role": "user", "content": "a ]},{ \\"messages\\": [ é"}'


def outcome(read: Any, body: bytes) -> Any:
    try:
        return read(body).model_dump_json()
    except RequestError as e:
        return str(e)


def as_a_whole(body: bytes) -> Any:
    return outcome(lambda body: read_as(ChatRequest, body), body)


@pytest.mark.parametrize(
    "rest",
    [
        *(f", {ONE}", f" ,{ONE} ,\n{ONE} ", "", ",", " ", f",{ONE},", f"{ONE}", ", 1", ", []"),
        *(f'], "n": 2, "stop": [{ONE}', f', {ONE}], "messages": [{ONE}', ', {"a": 1, "a": 2}'),
        *(', {"a": NaN}', ', {"a": "\\ud800"}', ", {}", ', {"a": ' + "[" * 61 + "]" * 61 + "}"),
        *(', {"a": ' + "[" * 62 + "]" * 62 + "}", f", {ONE}" * MAX_MESSAGES, ', {"a": 1e999}'),
        *(", \ufeff{}", ', "x"]}, {"": [1', "\x00, {}", f"], {ONE}, ["),
    ],
)
def test_whatever_stands_behind_what_is_known(rest: str) -> None:
    bodies = Bodies(ChatRequest, "messages")
    bodies.read(f"{HEAD}{ONE}{TAIL}".encode())
    body = f"{HEAD}{ONE}{rest}{TAIL}".encode()
    assert outcome(bodies.read, body) == as_a_whole(body)


def test_any_bodies_in_any_order() -> None:
    rng = random.Random(0)
    bodies, read = Bodies(ChatRequest, "messages"), 0
    sent = [b""]
    for _ in range(400):
        value: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}
        for _ in range(rng.randrange(4)):
            value["messages"].append(
                rng.choice([{"role": "tool", "a": 1}, {"a": True}, {"a": 1.0}])
            )
        if rng.random() < 0.3:
            value["n"] = rng.choice([1, 2])
        text = json.dumps(dict(rng.sample(sorted(value.items()), len(value))))
        if rng.random() < 0.2:
            place = rng.randrange(len(text))
            text = text[:place] + rng.choice('[]{},":1 ') + text[place + 1 :]
        sent.append(text.encode())
        assert outcome(bodies.read, sent[-1]) == as_a_whole(sent[-1])
        read += 1
    assert read == 400


def test_what_is_shared_is_the_same_object() -> None:
    bodies = Bodies(ChatRequest, "messages")
    first = bodies.read(f"{HEAD}{ONE}{TAIL}".encode())
    assert not first.offered.tools
    second = bodies.read(f"{HEAD}{ONE}, {ONE}{TAIL}".encode())
    assert second.messages[0] is first.messages[0] and len(second.messages) == 2
    assert second.offered is first.offered and len(first.messages) == 1


def test_lists_of_several_conversations_that_fork() -> None:
    rng = random.Random(1)
    call = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    pool = [
        *({"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}),
        *({"role": "tool", "tool_call_id": n, "content": n} for n in ("1", "2")),
    ]
    known, said = readings(), [[pool[0]]]
    for _ in range(300):
        before = rng.choice(said)
        said.append([*before[: rng.randrange(1, len(before) + 1)], *rng.choices(pool, k=2)])
        assert known.read(said[-1], Reading()).messages == read_messages(said[-1])


def test_only_what_is_new_is_read() -> None:
    read: list[Any] = []
    known: Continued[list[Any]] = Continued(list, lambda state, _, item: read.append(item))
    one, two = {}, {}
    known.read([one], [])
    known.read([one, two], [])
    assert len(read) == 2
    known.read([{}, two], [])  # equal, but another
    assert len(read) == 4
