"""Aliases for names of tools and arguments that a format or an API does not allow.

    the env's                list-files        cancel.order(ids[])
    in Python (LFM, Llama)   list_files        cancel_order(ids)
    OpenAI's API             list-files        cancel_order(ids)

Only the model sees an alias: it reads and writes the alias, and its calls are converted to the
original name.
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
TEXT_NAME = re.compile(r"(?!functions\.)[\w.:/@+-]{1,128}")  # Kimi and Harmony use that prefix
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
EMPTY = {"type": "object", "properties": {}}  # parameters of a function that has none


def _is_text(name: str) -> bool:
    # A tokenizer may normalize its input.
    return bool(TEXT_NAME.fullmatch(name)) and unicodedata.normalize("NFKC", name) == name


def _is_python(name: str) -> bool:
    return bool(IDENTIFIER.fullmatch(name)) and not keyword.iskeyword(name)


TEXT_NAMES = Alphabet(_is_text, NOT_TEXT, 128)
PYTHON_NAMES = Alphabet(_is_python, re.compile(r"[^a-zA-Z0-9_]+"), 128)
PYTHON_ARGUMENTS = replace(PYTHON_NAMES, prefix="arg")


def argument_names(allowed: str, longest: int = 128) -> Alphabet:
    """Return an alphabet for arguments that no tokenizer alters.

    `allowed` is the body of a character class.
    """
    whole = re.compile(rf"[{allowed}]{{1,{longest}}}")

    def allows(name: str) -> bool:
        is_plain = name.isprintable() and unicodedata.normalize("NFKC", name) == name
        return bool(whole.fullmatch(name)) and is_plain and name == name.strip()

    return Alphabet(allows, re.compile(r"[^a-zA-Z0-9_.-]+"), longest, "arg")


@dataclass(frozen=True, slots=True)
class Spelling:
    """The names of tools and arguments that a format or an API allows."""

    tools: Alphabet
    arguments: Alphabet | None = None  # None: any name
    nested: bool = False  # whether this applies to properties of nested objects, too


# Anthropic's API refuses a request with other argument names. It ignores nested properties.
API = Spelling(API_NAMES, argument_names("a-zA-Z0-9_.-", 64))
TEXT = Spelling(TEXT_NAMES)  # arguments are JSON
TAGGED = Spelling(TEXT_NAMES, argument_names(r'^<>"'))  # each argument in a tag
BARE = Spelling(TEXT_NAMES, argument_names(r"a-zA-Z0-9_$@./\-", 64), nested=True)
PYTHON = Spelling(PYTHON_NAMES, PYTHON_ARGUMENTS)


class ToolNames:
    """The aliases of tools, given in the form of OpenAI's API, and of their arguments."""

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
        """Return the model's name for a tool."""
        return self._aliases.get(name, name)

    def name(self, alias: str) -> str:
        """Return the name of the tool with this alias."""
        return self._names.get(alias, alias)

    def listed(self) -> list[str]:
        """Return the aliases as "ALIAS for NAME", those of arguments as "TOOL(ALIAS for NAME)"."""
        tools = [f"{alias} for {name}" for name, alias in self._aliases.items()]
        found = self._arguments.items()
        return tools + [f"{self.alias(tool)}({', '.join(a.listed())})" for tool, a in found]

    def schemas(self, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
        """Return schemas of arguments by tool, with aliases of tools and arguments."""
        found = self._arguments
        return {
            self.alias(tool): found[tool].shown(schema) if tool in found else schema
            for tool, schema in schemas.items()
        }

    def shown(self) -> list[Any]:
        """Return the tools in the form that the model sees."""
        return [self._shown(tool) for tool in self._tools]

    def chosen(self, choice: Any) -> Any:
        """Return a `tool_choice` of any API with aliases of the tools."""
        if isinstance(choice, list):
            return [self.chosen(each) for each in choice]
        if not isinstance(choice, dict):
            return choice
        found = {key: self.chosen(value) for key, value in choice.items()}
        if isinstance(name := choice.get("name"), str):
            found["name"] = self.alias(name)
        return found

    def sent(self, message: dict[str, Any], *, back: bool = False) -> dict[str, Any]:
        """Rename tools and arguments in an OpenAI message to aliases, or `back` to names."""
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
        """Convert a model's call, with arguments as JSON, to the original names."""
        found = self._called({"name": alias, "arguments": arguments}, back=True)
        return found["name"], found["arguments"]

    def spoken(self, turn: Turn) -> Turn:
        """Rename tools and arguments in a turn to aliases."""
        return self._renamed(turn, back=False)

    def meant(self, turn: Turn) -> Turn:
        """Rename tools and arguments in a model's turn to the original names."""
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
        if function.get("parameters") is None:  # legal in OpenAI's API: no arguments
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
