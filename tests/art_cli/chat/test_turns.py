"""What a model has written, as a call or as the reason why it is none."""

from __future__ import annotations

from typing import Any

import pytest

from art_cli.chat.turns import ToolCall, call_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "f", "arguments": {"a": 1}}, ToolCall(name="f", arguments={"a": 1})),
        ({"name": "f"}, ToolCall(name="f", arguments={})),
        ({"name": "f", "arguments": [1]}, "error: the arguments are not an object; expected S"),
        ({"name": "f", "arguments": None}, "error: the arguments are not an object; expected S"),
        ({"name": 5, "arguments": {}}, "error: the tool call has no name; expected S"),
        ({"arguments": {}}, "error: the tool call has no name; expected S"),
        (["f", {}], "error: the tool call has no name; expected S"),
        ("f", "error: the tool call has no name; expected S"),
    ],
)
def test_an_object_is_a_call_or_says_what_is_wrong_with_it(value: Any, expected: Any) -> None:
    assert call_of(value, "S") == expected


def test_other_keys_may_hold_the_name_and_the_arguments() -> None:
    found = call_of({"tool": "f", "input": {"a": 1}}, "S", "tool", ("arguments", "input"))
    assert found == ToolCall(name="f", arguments={"a": 1})
    assert call_of({"name": "f"}, "S", "tool") == "error: the tool call has no tool; expected S"
