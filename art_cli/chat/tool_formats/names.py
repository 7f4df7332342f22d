"""The names of tools and arguments as a model is told them.

    the env's                list-files        cancel.order(ids[])
    in Python (LFM, Llama)   list_files        cancel_order(ids)
    OpenAI's API             list-files        cancel_order(ids)

A name that a format or an API cannot hold has an alias, which the model alone knows: it reads and
writes the alias, and its calls are given the name.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from art_cli.chat.tool_formats.argument_names import ArgumentNames
from art_cli.chat.tool_formats.arguments import Schema
from art_cli.chat.turns import Turn, WrittenCall
from art_cli.system.aliases import API_NAMES, Alphabet, aliases

NOT_TEXT = re.compile(r"[^a-zA-Z0-9_.:/@+-]+")
TEXT_NAME = re.compile(r"(?!functions\.)[\w.:/@+-]{1,128}")  # a prefix of Kimi's and Harmony's own
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
EMPTY = {"type": "object", "properties": {}}  # the parameters of a function that names none


def _is_text(name: str) -> bool:
    # A tokenizer may normalize what it reads.
    return bool(TEXT_NAME.fullmatch(name)) and unicodedata.normalize("NFKC", name) == name


def _is_python(name: str) -> bool:
    return bool(IDENTIFIER.fullmatch(name)) and not keyword.iskeyword(name)


TEXT_NAMES = Alphabet(_is_text, NOT_TEXT, 128)
PYTHON_NAMES = Alphabet(_is_python, re.compile(r"[^a-zA-Z0-9_]+"), 128)
PYTHON_ARGUMENTS = replace(PYTHON_NAMES, prefix="arg")


def argument_names(allowed: str, longest: int = 128) -> Alphabet:
    """Return the alphabet of arguments that a pattern matches, as long as no tokenizer alters them.

    `allowed` is the body of a class of characters.
    """
    whole = re.compile(rf"[{allowed}]{{1,{longest}}}")

    def allows(name: str) -> bool:
        is_plain = name.isprintable() and unicodedata.normalize("NFKC", name) == name
        return bool(whole.fullmatch(name)) and is_plain and name == name.strip()

    return Alphabet(allows, re.compile(r"[^a-zA-Z0-9_.-]+"), longest, "arg")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The names of tools and arguments that a format or an API can hold."""

    tools: Alphabet
    arguments: Alphabet | None = None  # None: any
    nested: bool = False  # whether that is so for the properties of nested objects, too


# Anthropic's API refuses a request with any other argument. It looks at no nested property.
API = Spelling(API_NAMES, argument_names("a-zA-Z0-9_.-", 64))
TEXT = Spelling(TEXT_NAMES)  # arguments are JSON
TAGGED = Spelling(TEXT_NAMES, argument_names(r'^<>"'))  # each in a tag
BARE = Spelling(TEXT_NAMES, argument_names(r"a-zA-Z0-9_$@./\-", 64), nested=True)
PYTHON = Spelling(PYTHON_NAMES, PYTHON_ARGUMENTS)


class ToolNames:
    """The aliases of some tools, given as OpenAI's API has them, and of their arguments."""

    def __init__(self, tools: Sequence[Any] | None, spelling: Spelling = API) -> None:
        self._tools = tools or ()
        functions = {f["name"]: f for f in (t.get("function", t) for t in self._tools)}
        names = list(functions)
        pairs = zip(names, aliases(names, spelling.tools), strict=True)
        self._aliases = {name: alias for name, alias in pairs if name != alias}
        self._names = {alias: name for name, alias in self._aliases.items()}
        found = {
            name: ArgumentNames(f.get("parameters"), spelling.arguments, nested=spelling.nested)
            for name, f in functions.items()
        }
        self._arguments = {name: each for name, each in found.items() if each}

    def __bool__(self) -> bool:
        """Return whether any tool or argument has an alias."""
        return bool(self._aliases or self._arguments)

    def alias(self, name: str) -> str:
        """Return what the model calls a tool."""
        return self._aliases.get(name, name)

    def name(self, alias: str) -> str:
        """Return the name of a tool that the model calls so."""
        return self._names.get(alias, alias)

    def listed(self) -> list[str]:
        """Return the aliases as "ALIAS for NAME", those of arguments as "TOOL(ALIAS for NAME)"."""
        tools = [f"{alias} for {name}" for name, alias in self._aliases.items()]
        found = self._arguments.items()
        return tools + [f"{self.alias(tool)}({', '.join(a.listed())})" for tool, a in found]

    def schemas(self, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
        """Return schemas of arguments, given by tool, as the model knows tools and arguments."""
        found = self._arguments
        return {
            self.alias(tool): found[tool].shown(schema) if tool in found else schema
            for tool, schema in schemas.items()
        }

    def shown(self) -> list[Any]:
        """Return the tools as the model is shown them."""
        return [self._shown(tool) for tool in self._tools]

    def chosen(self, choice: Any) -> Any:
        """Return a `tool_choice` of any API with the aliases of the tools that it names."""
        if isinstance(choice, list):
            return [self.chosen(each) for each in choice]
        if not isinstance(choice, dict):
            return choice
        found = {key: self.chosen(value) for key, value in choice.items()}
        if isinstance(name := choice.get("name"), str):
            found["name"] = self.alias(name)
        return found

    def sent(self, message: dict[str, Any], *, back: bool = False) -> dict[str, Any]:
        """Return a message of OpenAI's as the model is sent it, or one of the model's, `back`."""
        if not self:
            return message
        changed: dict[str, Any] = {}
        if message.get("role") == "tool" and "name" in message:
            changed["name"] = self._other(message["name"], back)
        if calls := message.get("tool_calls"):
            changed["tool_calls"] = [
                {**call, "function": self._called(call["function"], back)} for call in calls
            ]
        return {**message, **changed}

    def called(self, alias: str, arguments: str) -> tuple[str, str]:
        """Return a model's call, its arguments as JSON, by the names that all others know."""
        found = self._called({"name": alias, "arguments": arguments}, back=True)
        return found["name"], found["arguments"]

    def spoken(self, turn: Turn) -> Turn:
        """Return a turn as the model says it."""
        return self._renamed(turn, back=False)

    def meant(self, turn: Turn) -> Turn:
        """Return a turn of the model with the names that all others know."""
        return self._renamed(turn, back=True)

    def _other(self, name: Any, back: bool) -> Any:
        return (self._names if back else self._aliases).get(name, name)

    def _called(self, function: dict[str, Any], back: bool) -> dict[str, Any]:
        name = function.get("name")
        other = self._other(name, back)
        made = {**function, "name": other}
        if found := self._arguments.get(other if back else name):  # type: ignore[arg-type]
            made["arguments"] = found.in_json(function.get("arguments"), back=back)
        return made

    def _shown(self, tool: Any) -> Any:
        function = tool.get("function", tool)
        name = function["name"]
        named = {**function, "name": self.alias(name)}
        if function.get("parameters") is None:  # legal in OpenAI's API: it takes no arguments
            named["parameters"] = EMPTY
        elif name in self._arguments:
            named["parameters"] = self._arguments[name].schema
        return {**tool, "function": named} if "function" in tool else named

    def _renamed(self, turn: Turn, *, back: bool) -> Turn:
        if not self:
            return turn

        def change(piece: str | WrittenCall) -> str | WrittenCall:
            if isinstance(piece, str):
                return piece
            call = piece.call
            if not isinstance(call, str):
                name, arguments = call["name"], call["arguments"]
                other = self._other(name, back)
                if found := self._arguments.get(other if back else name):
                    arguments = (found.meant if back else found.sent)(arguments)
                call = {**call, "name": other, "arguments": arguments}
            return replace(piece, call=call, name=self._other(piece.name, back))

        return replace(turn, pieces=tuple(change(piece) for piece in turn.pieces))
