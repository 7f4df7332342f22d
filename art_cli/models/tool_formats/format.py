"""What a format of tool calls is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from art_cli.models.tool_formats.readers import Reader, Schemas
from art_cli.models.turns import Turn, WrittenCall, call_text
from art_cli.types import ToolCall

NAME = "%s"  # where a call's name comes in `begin`


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way of writing tool calls."""

    name: str
    shape: str  # as the model is told it
    section: re.Pattern[str]  # what holds calls in a turn, and has what `read` gets as `body`
    read: Reader
    begin: str  # how a call begins, up to its arguments
    mark: str = ""  # what shows in a prompt that describes the format
    tags: str = ""  # further special tokens of it, that its shape does not show
    write: Callable[[list[ToolCall]], str] | None = None  # where a template cannot
    turn: Callable[[str, str], Turn] | None = None  # reads a whole turn: thinking has no own tags
    id: re.Pattern[str] | None = None  # of a call, as templates take it
    serves: str | None = None  # the name of vLLM's parser

    def pieces(self, said: str, schemas: Schemas) -> tuple[str | WrittenCall, ...]:
        """Return words and calls of what was said, in order."""
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
    """Return what stands between two tags; at the end of a turn the second may be missing."""
    return re.compile(rf"{opening}(?P<body>.*?)(?:{closing}|\Z)", re.S)


def write_list(before: str, after: str) -> Callable[[list[ToolCall]], str]:
    return lambda calls: before + json.dumps(calls, ensure_ascii=False) + after


def write_python(before: str, between: str, after: str) -> Callable[[list[ToolCall]], str]:
    def one(call: ToolCall) -> str:
        text = f"{call['name']}({', '.join(f'{k}={v!r}' for k, v in call['arguments'].items())})"
        return text.replace("```", r"\x60\x60\x60")  # in a string; it would end Gemma's section

    return lambda calls: before + between.join(map(one, calls)) + after


def write_hermes(calls: list[ToolCall]) -> str:
    return "\n".join(call_text(c["name"], json.dumps(c["arguments"])) for c in calls)


def write_llama(calls: list[ToolCall]) -> str:
    return "; ".join(
        json.dumps({"name": c["name"], "parameters": c["arguments"]}, ensure_ascii=False)
        for c in calls
    )


def write_kimi(calls: list[ToolCall]) -> str:
    written = (
        f"<|tool_call_begin|>functions.{c['name']}:{n}<|tool_call_argument_begin|>"
        f"{json.dumps(c['arguments'], ensure_ascii=False)}<|tool_call_end|>"
        for n, c in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{''.join(written)}<|tool_calls_section_end|>"
