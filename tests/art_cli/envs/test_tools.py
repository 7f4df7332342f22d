"""Tools: their schema is the signature, and what does not fit is told in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from art_cli.envs.base import Env
from art_cli.envs.tools import ToolError, ToolSpec, tool, tools_of


@dataclass
class Place:
    city: str
    zip: int


class Shop(Env):
    @tool()
    def find(
        self,
        words: list[str],
        size: Literal["small", "large"] = "small",
        near: Place | None = None,
        limit: Annotated[int, Field(ge=1, le=10)] = 5,
    ) -> str:
        """Find things to
        buy.

        This is not for the model.

        Args:
            words: what is looked for,
                all of them
            size: of the box
        """
        return ""

    @tool(writes=True)
    async def buy(self, item: str) -> str:
        """Buy it."""
        return ""

    @tool()
    def untyped(self, text, schema="x", copy=1) -> str:
        """Names that pydantic's models have too."""
        return ""

    def not_a_tool(self) -> None: ...


def spec(name: str, env: type[Env] = Shop) -> ToolSpec:
    return tools_of(env)[name]


def refusal(name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as raised:
        spec(name).parse(arguments)
    return str(raised.value)


def test_marked_methods_are_tools_in_the_order_of_definition() -> None:
    assert list(tools_of(Shop)) == ["find", "buy", "untyped"]
    assert [t.writes for t in tools_of(Shop).values()] == [False, True, False]


def test_a_decorator_without_parentheses_is_told() -> None:
    with pytest.raises(TypeError, match=r"write @art\.tool\(\)"):
        tool(lambda: None)  # type: ignore[arg-type]


def test_a_subclass_inherits_and_overrides() -> None:
    class Other(Shop):
        @tool()
        def buy(self, item: str, count: int) -> str:
            """Buy some."""
            return ""

    assert list(tools_of(Other)) == ["find", "buy", "untyped"]
    assert spec("buy", Other).description == "Buy some." and not spec("buy", Other).writes


def test_the_description_is_the_first_paragraph() -> None:
    assert spec("find").schema()["function"]["description"] == "Find things to buy."


def test_the_schema_is_the_signature() -> None:
    parameters = spec("find").schema()["function"]["parameters"]
    assert parameters["required"] == ["words"] and parameters["type"] == "object"
    properties = parameters["properties"]
    assert properties["words"] == {
        "description": "what is looked for, all of them",
        "items": {"type": "string"},
        "type": "array",
    }
    assert properties["size"]["enum"] == ["small", "large"]
    assert properties["size"]["description"] == "of the box"
    assert properties["limit"] == {"default": 5, "maximum": 10, "minimum": 1, "type": "integer"}


def test_a_nested_type_is_described() -> None:
    parameters = spec("find").schema()["function"]["parameters"]
    assert {"type": "null"} in parameters["properties"]["near"]["anyOf"]
    assert parameters["$defs"]["Place"]["required"] == ["city", "zip"]


def test_a_tool_without_arguments_has_an_empty_schema() -> None:
    class Bare(Env):
        @tool()
        def look(self) -> str:
            return ""

    parameters = spec("look", Bare).schema()["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}}


def test_arguments_come_with_their_defaults_and_types() -> None:
    parsed = spec("find").parse({"words": ["a"], "near": {"city": "Ulm", "zip": "89073"}})
    assert parsed == {
        "words": ["a"],
        "size": "small",
        "near": Place("Ulm", 89073),
        "limit": 5,
    }


def test_arguments_may_be_called_as_pydantic_calls_its_own() -> None:
    assert spec("untyped").parse({"text": "a"}) == {"text": "a", "schema": "x", "copy": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "words: Field required"),
        ({"words": "a"}, "words: Input should be a valid list"),
        ({"words": [1]}, "words.0: Input should be a valid string"),
        ({"words": [], "size": "huge"}, "size: Input should be 'small' or 'large'"),
        ({"words": [], "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"words": [], "near": {"city": "Ulm"}}, "near.zip: Field required"),
        ({"words": [], "limit": 11}, "limit: Input should be less than or equal to 10"),
    ],
)
def test_what_does_not_fit_is_told_in_words(arguments: dict[str, Any], words: str) -> None:
    assert refusal("find", **arguments).startswith("invalid arguments for find: ")
    assert words in refusal("find", **arguments)


def test_all_mistakes_are_told_at_once() -> None:
    assert refusal("find", size="huge", colour="red").count(";") == 2
