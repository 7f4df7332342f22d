"""Parsed assistant turns, and the text form of turns that is independent of the model.

    the model     [TOOL_CALLS]get_order[ARGS]{"order_id": "W42"}
    text form     <tool_call>{"name": "get_order", "arguments": {"order_id": "W42"}}</tool_call>

Envs, judges, reports and demonstrations use the text form, whatever the model's format is. Calls
are written like Hermes's, and thinking is between <think> and </think>. The turns of a model with
that very format are left unchanged.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from art_cli.system.untrusted import read_json
from art_cli.types import ToolCall

TOOL_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.S)
TOOL_CALL_FORMAT = '<tool_call>{"name": <name>, "arguments": <object>}</tool_call>'
THINK = "<think>", "</think>"
MARKERS = ("<tool_call>", "</tool_call>", *THINK)  # of the text form


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A tool call in a turn."""

    text: str  # as the model wrote it
    call: ToolCall | str  # a string is the error of a malformed call
    id: str | None = None  # if the format has ids
    name: str = ""  # the tool of a malformed call, if it can be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn: its thinking, its text and its calls."""

    thought: str
    said: str  # all but the thinking, including calls
    pieces: tuple[str | WrittenCall, ...]  # the parts of `said`, in order

    @property
    def written(self) -> list[WrittenCall]:
        """The calls of the turn, with their text."""
        return [p for p in self.pieces if isinstance(p, WrittenCall)]

    @property
    def calls(self) -> list[ToolCall | str]:
        """The calls of the turn; a string is the error of a malformed call."""
        return [c.call for c in self.written]

    @property
    def words(self) -> str:
        """The text outside the calls."""
        return "".join(p for p in self.pieces if isinstance(p, str))

    def means(self, other: Turn) -> bool:
        """Return whether two turns have equal content. A malformed call equals any call."""
        if self.thought != other.thought or self.words.strip() != other.words.strip():
            return False
        pairs = list(zip(self.calls, other.calls, strict=False))
        whole = len(self.calls) == len(other.calls)
        return whole and all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs)


def thinks(text: str, tags: tuple[str, str] = THINK) -> tuple[str, str]:
    """Split a turn into (thinking, rest). The thinking may be cut off or lack its opening tag.

    Templates write the opening tag into the prompt if a model always thinks.
    """
    opening, closing = tags
    before, closed, rest = text.rpartition(closing)
    said, opened, after = rest.partition(opening)
    if not (closed or opened):
        return "", text
    thought = f"{before}\n{after}" if opened else before
    return thought.replace(opening, "").replace(closing, "").strip(), said.strip()


def spoken(text: str) -> str:
    """Return a turn in the text form without its thinking."""
    return thinks(text)[1]


def parse_tool_calls(text: str) -> list[ToolCall | str]:
    """Parse the tool calls of a turn in the text form; a string is the error of one."""
    return [parse_tool_call(body) for body in TOOL_CALL.findall(text)]


def parse_tool_call(body: str) -> ToolCall | str:
    """Parse the text between the tags of a call; a string is the error."""
    try:
        call = read_json(body)
    except ValueError as e:
        return f"error: the tool call is not valid JSON ({e}); expected {TOOL_CALL_FORMAT}"
    return call_of(call, TOOL_CALL_FORMAT)


def call_of(
    value: object,
    shape: str,
    name_key: str = "name",
    arguments_keys: tuple[str, ...] = ("arguments",),
) -> ToolCall | str:
    """Convert a parsed object to a call; a string is the error."""
    if not isinstance(value, dict) or not isinstance(value.get(name_key), str):
        return f"error: the tool call has no {name_key}; expected {shape}"
    arguments = next((value[key] for key in arguments_keys if key in value), {})
    if not isinstance(arguments, dict):
        return f"error: the arguments are not an object; expected {shape}"
    return ToolCall(name=value[name_key], arguments=arguments)


def read_turn(text: str) -> Turn:
    """Parse a turn in the text form."""
    thought, said = thinks(text)
    pieces: list[str | WrittenCall] = []
    end = 0
    for match in TOOL_CALL.finditer(said):
        pieces.append(said[end : match.start()])
        pieces.append(WrittenCall(text=match[0], call=parse_tool_call(match[1])))
        end = match.end()
    return Turn(thought=thought, said=said, pieces=(*pieces, said[end:]))


def write_turn_text(turn: Turn) -> str:
    """Write a turn in the text form. Markers in its own text are broken up."""
    written = "".join(_written(p) for p in turn.pieces)
    return f"<think>\n{turn.thought}\n</think>\n\n{written.strip()}" if turn.thought else written


def call_text(name: str, arguments: str) -> str:
    """Return a call in the text form, given its arguments as JSON, valid or not."""
    body = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    if any(marker in body for marker in MARKERS):
        body = body.replace("<", "\\u003c")  # equivalent in JSON
    return f"<tool_call>{body}</tool_call>"


def plain(words: str, markers: tuple[str, ...] = MARKERS) -> str:
    """Break up markers in a text, so that they are not parsed."""
    for marker in markers:
        words = words.replace(marker, f"{marker[0]} {marker[1:]}")
    return words


def _written(piece: str | WrittenCall) -> str:
    if isinstance(piece, str):
        return plain(piece)
    if isinstance(piece.call, str):
        return f"<tool_call>{plain(piece.text)}</tool_call>"
    return call_text(piece.call["name"], json.dumps(piece.call["arguments"], ensure_ascii=False))
