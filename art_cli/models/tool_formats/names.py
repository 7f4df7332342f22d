"""The names of tools in a model's own words: one that a format or an API cannot hold has an alias.

    the env's                list-files        cancel.order
    in Python (LFM, Llama)   list_files        cancel_order
    OpenAI's API             list-files        cancel_order

All but the model know a tool by its name: what it reads has the alias, what it calls the name.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from art_cli.models.turns import Turn, WrittenCall
from art_cli.system.aliases import API_NAMES, Alphabet, aliases

NOT_TEXT = re.compile(r"[^a-zA-Z0-9_.:/@+-]+")
TEXT = re.compile(r"(?!functions\.)[\w.:/@+-]{1,128}")  # a prefix of Kimi's and Harmony's own
PYTHON = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
EMPTY = {"type": "object", "properties": {}}  # the parameters of a function that names none
Value = TypeVar("Value")


def _is_text(name: str) -> bool:
    # A tokenizer may normalize what it reads.
    return bool(TEXT.fullmatch(name)) and unicodedata.normalize("NFKC", name) == name


def _is_python(name: str) -> bool:
    return bool(PYTHON.fullmatch(name)) and not keyword.iskeyword(name)


TEXT_NAMES = Alphabet(_is_text, NOT_TEXT, 128)
PYTHON_NAMES = Alphabet(_is_python, re.compile(r"[^a-zA-Z0-9_]+"), 128)


class ToolNames:
    """The aliases of some tools, given as OpenAI's API has them."""

    def __init__(self, tools: Sequence[Any] | None, alphabet: Alphabet = API_NAMES) -> None:
        self._tools = tools or ()
        names = list(dict.fromkeys(t.get("function", t)["name"] for t in self._tools))
        pairs = zip(names, aliases(names, alphabet), strict=True)
        self._aliases = {name: alias for name, alias in pairs if name != alias}
        self._names = {alias: name for name, alias in self._aliases.items()}

    def __bool__(self) -> bool:
        """Return whether any tool has an alias."""
        return bool(self._aliases)

    def alias(self, name: str) -> str:
        """Return what the model calls a tool."""
        return self._aliases.get(name, name)

    def name(self, alias: str) -> str:
        """Return the name of a tool that the model calls so."""
        return self._names.get(alias, alias)

    def by_alias(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return values of tools by their aliases."""
        return {self.alias(name): value for name, value in values.items()}

    def shown(self) -> list[Any]:
        """Return the tools as the model is shown them."""
        return [self._shown(tool) for tool in self._tools]

    def sent(self, message: dict[str, Any], *, back: bool = False) -> dict[str, Any]:
        """Return a message of OpenAI's as the model is sent it, or one of the model's, `back`."""
        names = self._names if back else self._aliases
        if not names:
            return message
        changed = {k: names.get(v, v) for k, v in message.items() if k == "name"}
        if calls := message.get("tool_calls"):
            changed["tool_calls"] = [
                {**c, "function": {**f, "name": names.get(f.get("name"), f.get("name"))}}
                for c in calls
                for f in [c["function"]]
            ]
        return {**message, **changed}

    def spoken(self, turn: Turn) -> Turn:
        """Return a turn as the model says it."""
        return _renamed(turn, self._aliases)

    def meant(self, turn: Turn) -> Turn:
        """Return a turn of the model with the names that all others know."""
        return _renamed(turn, self._names)

    def _shown(self, tool: Any) -> Any:
        function = tool.get("function", tool)
        named = {**function, "name": self.alias(function["name"])}
        if function.get("parameters") is None:  # legal in OpenAI's API: it takes no arguments
            named["parameters"] = EMPTY
        return {**tool, "function": named} if "function" in tool else named


def _renamed(turn: Turn, names: Mapping[str, str]) -> Turn:
    if not names:
        return turn

    def change(piece: str | WrittenCall) -> str | WrittenCall:
        if isinstance(piece, str):
            return piece
        call = piece.call
        if not isinstance(call, str):
            call = {**call, "name": names.get(call["name"], call["name"])}
        return replace(piece, call=call, name=names.get(piece.name, piece.name))

    return replace(turn, pieces=tuple(change(piece) for piece in turn.pieces))
