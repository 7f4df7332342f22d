"""`@tool`: a method of an env that the model can call; its schema comes from the signature."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from art_cli.errors import UsageError

MOST_NAMED = 12  # tools named in a message
SHOWN = 4000  # characters of an error about a call's arguments

Method = TypeVar("Method", bound=Callable[..., Any])


class ToolError(Exception):
    """Raised by a tool to refuse a call. The model reads its text."""


class InvalidCallError(ToolError):
    """Raised for an invalid call: there is no such tool, or the arguments do not fit it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of one episode, as returned by `Env.tools()`."""

    name: str
    description: str
    parameters: dict[str, Any]  # the JSON schema of its arguments, an object
    writes: bool = False  # changes state, or may do so

    def schema(self) -> dict[str, Any]:
        """Return the tool as a chat template and an OpenAI client expect it."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": self.parameters,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool that is a method of an env."""

    name: str
    method: str  # of the env
    description: str
    writes: bool  # changes state, which matters to judges and simulated users
    arguments: type[BaseModel]

    def schema(self) -> dict[str, Any]:
        """Return the tool as a chat template and an OpenAI client expect it."""
        return self.tool().schema()

    def tool(self) -> Tool:
        """Return the tool as an episode offers it."""
        parameters = self.arguments.model_json_schema()
        parameters.pop("title", None)
        parameters.setdefault("properties", {})
        for value in parameters["properties"].values():
            value.pop("title", None)
        parameters.pop("additionalProperties", None)
        return Tool(
            name=self.name,
            description=self.description,
            parameters=parameters,
            writes=self.writes,
        )

    def parse(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return validated arguments, ready to be passed as keywords.

        Raises InvalidCallError, which describes every mistake for the model.
        """
        try:
            parsed = self.arguments.model_validate(arguments)
        except ValidationError as e:
            mistakes = "; ".join(
                f"{'.'.join(map(str, m['loc'])) or 'arguments'}: {m['msg']}" for m in e.errors()
            )
            mistakes = mistakes if len(mistakes) <= SHOWN else f"{mistakes[:SHOWN]}..."
            raise InvalidCallError(f"invalid arguments for {self.name}: {mistakes}") from None
        return {name: getattr(parsed, name) for name in type(parsed).model_fields}


def tool(
    without: None = None, /, *, writes: bool = False, name: str = ""
) -> Callable[[Method], Method]:
    """Offer a method of an env to the model.

    The JSON schema is made from the type hints, the description from the docstring's first
    paragraph, and the arguments' descriptions from its `Args:` section. Unknown arguments are
    rejected. `name` is for a tool whose name is also a method of Env, such as `reply`.
    """
    if without is not None:
        raise TypeError("a decorator without its parentheses; write @art.tool()")

    def mark(method: Method) -> Method:
        method._art_tool = writes, name  # type: ignore[attr-defined]
        return method

    return mark


@cache  # called in each episode, and pydantic takes a millisecond
def tools_of(env_class: type) -> dict[str, ToolSpec]:
    """Return the tools of an env class by name, in the order of definition, base classes first.

    Raises UsageError if a tool would override a method that is not a tool, such as `reply`.
    """
    found: dict[str, ToolSpec] = {}
    taken: set[str] = set()
    for klass in reversed(env_class.__mro__):
        for name, method in vars(klass).items():
            if not hasattr(method, "_art_tool"):
                taken.add(name)
                continue
            if name in taken:
                code = inspect.unwrap(method).__code__
                raise UsageError(
                    f"{code.co_filename}:{code.co_firstlineno}: {klass.__name__}.{name} is a tool, "
                    "and a method of its base class too: give the method another name, and the "
                    f'tool this one: @tool(name="{name}")'
                )
            spec = _spec(name, method)
            found[spec.name] = spec
    return found


@cache
def offered_by(env_class: type) -> list[Tool]:
    """Return the tools of an env class that are methods, as an episode offers them."""
    if remote := getattr(env_class, "art_remote", None):
        return remote.tools
    return [spec.tool() for spec in tools_of(env_class).values()]


@cache
def schemas_of(env_class: type) -> list[dict[str, Any]]:
    """Return the tools of an env class as JSON schemas."""
    return [tool.schema() for tool in offered_by(env_class)]


def named_tools(names: Sequence[str]) -> str:
    """Return some tool names for a message: the first ones, and the number of others."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _spec(method_name: str, method: Callable[..., Any]) -> ToolSpec:
    writes, name = method._art_tool  # type: ignore[attr-defined]
    name = name or method_name
    description, argument_docs = _split_docstring(inspect.getdoc(method) or "")
    hints = get_type_hints(method, include_extras=True)
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(method).parameters.values())[1:]:  # without self
        default = parameter.default
        field = (hints.get(parameter.name, str), ... if default is parameter.empty else default)
        fields[parameter.name] = field
    config = ConfigDict(extra="forbid", protected_namespaces=())
    with warnings.catch_warnings():  # an argument may be named `schema`, which is harmless
        warnings.filterwarnings("ignore", "Field name .* shadows", UserWarning)
        model = create_model(name, __config__=config, **fields)
    for argument, text in argument_docs.items():
        if argument in model.model_fields:
            model.model_fields[argument].description = text
    model.model_rebuild(force=True)
    return ToolSpec(
        name=name,
        method=method_name,
        description=description,
        writes=writes,
        arguments=model,
    )


def _split_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """Return (the first paragraph on one line, the `Args:` entries by name)."""
    head, _, rest = doc.partition("Args:")
    description = " ".join(head.strip().split("\n\n")[0].split())
    entries = re.findall(r"^\s*(\w+):\s*(.+?)(?=^\s*\w+:|\Z)", rest, re.M | re.S)
    return description, {name: " ".join(text.split()) for name, text in entries}
