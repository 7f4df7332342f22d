"""The description of a format of tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from art_cli.chat.tool_formats.names import BARE, PYTHON, TAGGED, TEXT, Spelling
from art_cli.chat.tool_formats.readers import Reader, Schemas
from art_cli.chat.turns import MARKERS, Turn, WrittenCall
from art_cli.types import ToolCall

# Placeholders in a format's texts.
NAME = "%s"  # of the tool
ARGUMENTS = "%a"
NUMBER = "%n"  # index of the call in its turn
KEY = "%k"  # name of an argument
VALUE = "%v"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The syntax of a format that writes arguments one by one, not as a JSON object."""

    text: str  # an argument that is text, with KEY and VALUE
    other: str = ""  # an argument of another type, as JSON, if written differently
    between: str = ""  # separator of two arguments
    python: bool = False  # values are Python literals
    bare: bool = False  # keys have no tags or quotes, also in nested objects

    def of(self, is_text: bool) -> str:
        """Return the syntax of an argument that is text, or of another type."""
        return self.text if is_text else self.other or self.text

    def write(self, arguments: dict[str, Any]) -> str:
        """Return the arguments of a call as text."""
        return self.between.join(self._pair(k, v) for k, v in arguments.items())

    def _pair(self, key: str, value: Any) -> str:
        if self.python:
            written = repr(value)
        else:
            written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return self.of(isinstance(value, str)).replace(KEY, key, 1).replace(VALUE, written, 1)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The text around names and arguments of the calls in a turn."""

    before: str  # before the first name
    middle: str  # between a name and its arguments
    join: str  # between the arguments of a call and the next name
    end: str  # after the last arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One format of tool calls."""

    name: str
    shape: str  # as shown to the model
    section: re.Pattern[str]  # matches a section of calls; its group `body` is given to `read`
    read: Reader
    call: str  # one call, with NAME and ARGUMENTS
    opening: str = ""  # before the first call
    between: str = ""  # separator of two calls
    closing: str = ""  # after the last call
    pairs: Pairs | None = None  # None: the arguments are a JSON object
    writes: bool = False  # it can write calls that a template cannot write
    mark: str = ""  # a text by which a prompt is recognized that describes the format
    tags: str = ""  # further special tokens of the format that `shape` does not contain
    turn: Callable[[str, str], Turn] | None = None  # reads a whole turn with its thinking
    id: re.Pattern[str] | None = None  # call ids that templates accept
    serves: str | None = None  # name of vLLM's parser

    @property
    def names(self) -> Spelling:
        """The spelling of names of tools and arguments that calls in this format allow."""
        if self.pairs is None:
            return TEXT
        if self.pairs.python:
            return PYTHON
        return BARE if self.pairs.bare else TAGGED

    @property
    def begin(self) -> str:
        """The text of a call up to its arguments, with NAME as the placeholder of the name."""
        return self.opening + self.call.partition(ARGUMENTS)[0].replace(NUMBER, "0")

    @property
    def surroundings(self) -> Surroundings:
        """The text around names and arguments, derived from `call` and the texts around calls."""
        before, _, behind = self.call.partition(NAME)
        middle, _, after = behind.partition(ARGUMENTS)
        join, end = after + self.between + before, after + self.closing
        return Surroundings(self.opening + before, middle, join, end)

    def write(self, calls: list[ToolCall]) -> str:
        """Write calls in this format."""
        written = self.between.join(self._written(n, c) for n, c in enumerate(calls))
        return self.opening + written + self.closing

    def _written(self, number: int, call: ToolCall) -> str:
        name, arguments = call["name"], call["arguments"]
        if self.pairs:
            text = self.pairs.write(arguments)
        else:
            name, text = (
                json.dumps(name, ensure_ascii=False)[1:-1],
                json.dumps(arguments, ensure_ascii=False),
            )
            if any(marker in text for marker in MARKERS):
                text = text.replace("<", "\\u003c")  # equivalent in JSON
        before, _, after = self.call.replace(NUMBER, str(number), 1).partition(ARGUMENTS)
        if "```" in self.closing:
            text = text.replace("```", r"\x60\x60\x60")  # it would end the section
        return before.replace(NAME, name, 1) + text + after

    def pieces(self, said: str, schemas: Schemas) -> tuple[str | WrittenCall, ...]:
        """Split text into text and calls, in order."""
        found: list[str | WrittenCall] = []
        end = 0
        for match in self.section.finditer(said):
            found.append(said[end : match.start()])
            calls = list(self.read(match["body"], self.shape, schemas))
            alone = len(calls) == 1
            found += [replace(c, text=match[0]) for c in calls] if alone else calls
            end = match.end()
        return (*found, said[end:])


def between(opening: str, closing: str) -> re.Pattern[str]:
    """Match the text between two tags. At the end of a turn, the closing tag may be missing."""
    return re.compile(rf"{opening}(?P<body>.*?)(?:{closing}|\Z)", re.S)
