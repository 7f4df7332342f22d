"""A schema from outside is checked before anything is compiled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from art_cli.chat.grammar.schema import MAX_CHARACTERS, checked_schema
from art_cli.errors import ConstraintError


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("text", "a JSON schema is an object, got 'text'"),
        (False, "a JSON schema is an object, got False"),
        ({"const": float("nan")}, "is not JSON: ValueError"),
        ({"enum": ["x" * MAX_CHARACTERS]}, "characters, at most"),
        (nested(70), "nested more than 64 levels"),
        (nested(100_000), "not JSON: RecursionError|nested more than 64 levels"),
        ({"properties": {str(i): {} for i in range(1001)}}, "properties .* has 1001 entries"),
        ({"type": "array", "minItems": 10**9}, "add up to more than 20000"),
        ({"anyOf": [{"multipleOf": 9973}] * 3}, "add up to more than 20000"),
        ({"multipleOf": float(10**308)}, "add up to more than 20000"),
        ({"type": "string", "minLength": 10**6}, "minLength .* more than 10000"),
    ],
)
def test_what_would_cost_too_much_is_refused(schema: Any, what: str) -> None:
    with pytest.raises(ConstraintError, match=what):
        checked_schema(schema)


def test_a_format_that_is_not_known_means_nothing_as_the_standard_has_it() -> None:
    schema = {
        "properties": {
            "format": {"type": "string", "format": "phone"},
            "at": {"type": "string", "format": "date"},
        },
        "enum": [{"format": "phone"}],
    }
    made = json.loads(checked_schema(schema))
    assert made["properties"] == {
        "format": {"type": "string"},
        "at": {"type": "string", "format": "date"},
    }
    assert made["enum"] == [{"format": "phone"}]


def test_the_librarys_settings_are_not_a_clients_to_make() -> None:
    made = json.loads(checked_schema({"x-guidance": {"lenient": True}, "type": "object"}))
    assert "lenient" not in made["x-guidance"]
    assert made["x-guidance"]["whitespace_flexible"] is False


def test_the_order_of_properties_is_kept() -> None:
    names = [*"zyxabc"]
    made = json.loads(checked_schema({"properties": {name: {} for name in names}}))
    assert [*made["properties"]] == names


@pytest.mark.parametrize("named", ["https://json-schema.org/draft-07/schema", "ftp://elsewhere"])
def test_a_draft_is_known_however_it_is_spelled(named: str) -> None:
    made = json.loads(checked_schema({"$schema": named}))
    known = "http://json-schema.org/draft-07/schema#"
    assert made["$schema"] == (known if "draft-07" in named else named)
