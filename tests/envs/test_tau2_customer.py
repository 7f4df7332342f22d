"""The customer with tools of their own, without tau2: who is asked what, and what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from art_cli import ToolError
from art_cli.llms.base import NativeCall, Reply
from art_envs.adapters.tau2_customer import (
    ENOUGH,
    MAX_CALLS,
    Tau2ModelCustomer,
    Tau2ToldCustomer,
)

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("look", "press")]


class Model:
    """Says what it is given, and keeps what it was asked."""

    name = "openai/customer"

    def __init__(self, replies: Iterator[Reply]) -> None:
        self.replies = replies
        self.asked: list[tuple[list[Any], Any]] = []

    async def ask(self, messages: Any, schema: Any = None, tools: Any = None) -> Reply:
        self.asked.append((messages, tools))
        return next(self.replies)


def calling(*calls: tuple[str, str], text: str = "") -> Reply:
    """A reply that calls: pairs of a name and the JSON of its arguments."""
    made = tuple(NativeCall(id=f"c{n}", name=c[0], arguments=c[1]) for n, c in enumerate(calls))
    written = [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in made
    ]
    message = {"role": "assistant", "content": text, "tool_calls": written}
    return Reply(text=text, calls=made, message=message)


def press(name: str, arguments: dict[str, Any]) -> str:
    if name not in ("look", "press"):
        raise ToolError(f"Tool '{name}' not found.")
    return f"{name} {arguments}"


def customer_of(*replies: Reply) -> tuple[Tau2ModelCustomer, Model]:
    model = Model(iter(replies))
    return Tau2ModelCustomer(model, "You are Mei.", TOOLS, press), model  # type: ignore[arg-type]


def answers(customer: Any, *texts: str) -> list[str]:
    async def go() -> list[str]:
        return [await customer.answer(text) for text in texts]

    return asyncio.run(go())


def test_calls_are_made_and_their_results_go_to_the_customer_alone() -> None:
    customer, model = customer_of(
        Reply(text="My phone is dead."),
        calling(("look", "{}"), ("press", '{"key": "on"}'), text="Let me see."),
        calling(("look", "{}")),
        Reply(text="It works."),
    )
    assert answers(customer, "Hi!", "Press the key.") == ["My phone is dead.", "It works."]
    heard, tools = model.asked[-1]
    assert tools == TOOLS
    assert [m["role"] for m in heard] == [
        *("system", "user", "assistant", "user"),
        *("assistant", "tool", "tool", "assistant", "tool"),
    ]
    results = [(m["tool_call_id"], m["content"]) for m in heard if m["role"] == "tool"]
    assert results == [("c0", "look {}"), ("c1", "press {'key': 'on'}"), ("c0", "look {}")]
    assert heard[4]["content"] == "Let me see."  # its own words to itself


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (("cook", "{}"), "Error: Tool 'cook' not found."),
        (("look", '{"a": '), "Error: the arguments of look are no JSON"),
        (("look", "[" * 100_000), "Error: the arguments of look are no JSON"),
        (("look", "[1]"), "Error: the arguments of look are no JSON object"),
    ],
)
def test_a_broken_call_is_answered_with_its_error(call: tuple[str, str], error: str) -> None:
    customer, model = customer_of(calling(call), Reply(text="Hm."))
    assert answers(customer, "Look.") == ["Hm."]
    assert model.asked[-1][0][-1]["content"].startswith(error)


def test_who_calls_too_often_is_told_to_speak() -> None:
    calls = [("look", "{}")] * (MAX_CALLS + 3)
    customer, model = customer_of(calling(*calls), Reply(text="It is dead."))
    assert answers(customer, "Look.") == ["It is dead."]
    results = [m["content"] for m in model.asked[-1][0] if m["role"] == "tool"]
    assert results == ["look {}"] * MAX_CALLS + [ENOUGH] * 3


def test_who_calls_without_end_is_a_failure_of_the_customer() -> None:
    customer, model = customer_of(*(calling(("look", "{}")) for _ in range(99)))
    with pytest.raises(RuntimeError, match="openai/customer, calls tools without end"):
        answers(customer, "Look.")
    assert len(model.asked) == MAX_CALLS + 2


def test_the_bound_is_of_one_turn() -> None:
    turn = [*(calling(("look", "{}")) for _ in range(MAX_CALLS)), Reply(text="Dead.")]
    customer, _ = customer_of(*turn, *turn)
    assert answers(customer, "Look.", "Again.") == ["Dead.", "Dead."]


def test_without_tools_calls_are_words() -> None:
    model: Any = Model(iter([calling(("look", "{}"), text="I look.")]))
    assert answers(Tau2ModelCustomer(model, "You are Mei.", [], press), "Hi!") == ["I look."]
    assert model.asked[0][1] is None


def test_who_is_told_uses_the_tools_that_are_named() -> None:
    told = Tau2ToldCustomer("My phone is dead.", TOOLS, press)
    texts = ("Hi!", 'Please use press with {"key": "on"}, then look.', "Goodbye.")
    assert answers(told, *texts) == [
        "My phone is dead.",
        "press {'key': 'on'}\nlook {}",
        "###STOP###",
    ]
