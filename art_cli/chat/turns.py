"""A turn of an assistant, taken apart, and the one text form in which all but the model see it.

    the model     [TOOL_CALLS]get_order[ARGS]{"order_id": "W42"}
    text form     <tool_call>{"name": "get_order", "arguments": {"order_id": "W42"}}</tool_call>

Envs, judges, reports and demonstrations speak the text form, whatever the model's own words are:
its calls are those of Hermes, its thinking stands between <think> and </think>. What a model says
that speaks so itself is left to the letter.
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
MARKERS = ("<tool_call>", "</tool_call>", *THINK)  # that the text form reads


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCall:
    """A tool call as a turn has it."""

    text: str  # as it was written
    call: ToolCall | str  # a string says what is wrong with it
    id: str | None = None  # where the format has one
    name: str = ""  # of a tool that is called wrongly, where it can be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn: its thoughts, words and calls."""

    thought: str
    said: str  # all but the thinking, calls included: what tools, env and user get to hear
    pieces: tuple[str | WrittenCall, ...]  # of what was said, in order

    @property
    def written(self) -> list[WrittenCall]:
        """Its calls, as they were written."""
        return [p for p in self.pieces if isinstance(p, WrittenCall)]

    @property
    def calls(self) -> list[ToolCall | str]:
        """Its calls; a string says what is wrong with one."""
        return [c.call for c in self.written]

    @property
    def words(self) -> str:
        """The words beside the calls."""
        return "".join(p for p in self.pieces if isinstance(p, str))

    def means(self, other: Turn) -> bool:
        """Return whether the two say the same, however it is written; a bad call is like any."""
        if self.thought != other.thought or self.words.strip() != other.words.strip():
            return False
        pairs = list(zip(self.calls, other.calls, strict=False))
        whole = len(self.calls) == len(other.calls)
        return whole and all(isinstance(a, str) or isinstance(b, str) or a == b for a, b in pairs)


def thinks(text: str, tags: tuple[str, str] = THINK) -> tuple[str, str]:
    """Return what a turn thinks and what it says; the thinking may be cut short, or lack its tag.

    Templates write the opening tag where a model always thinks.
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
    """Return the tool calls of a turn in the text form; a string says what is wrong with one."""
    return [parse_tool_call(body) for body in TOOL_CALL.findall(text)]


def parse_tool_call(body: str) -> ToolCall | str:
    """Return what stands between the tags; a string says what is wrong with it."""
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
    """Return the call that an object describes; a string says what is wrong with it."""
    if not isinstance(value, dict) or not isinstance(value.get(name_key), str):
        return f"error: the tool call has no {name_key}; expected {shape}"
    arguments = next((value[key] for key in arguments_keys if key in value), {})
    if not isinstance(arguments, dict):
        return f"error: the arguments are not an object; expected {shape}"
    return ToolCall(name=value[name_key], arguments=arguments)


def read_turn(text: str) -> Turn:
    """Take a turn in the text form apart."""
    thought, said = thinks(text)
    pieces: list[str | WrittenCall] = []
    end = 0
    for match in TOOL_CALL.finditer(said):
        pieces.append(said[end : match.start()])
        pieces.append(WrittenCall(text=match[0], call=parse_tool_call(match[1])))
        end = match.end()
    return Turn(thought=thought, said=said, pieces=(*pieces, said[end:]))


def write_turn_text(turn: Turn) -> str:
    """Return a turn in the text form. What its words say of the form's markers is not the form."""
    written = "".join(_written(p) for p in turn.pieces)
    return f"<think>\n{turn.thought}\n</think>\n\n{written.strip()}" if turn.thought else written


def call_text(name: str, arguments: str) -> str:
    """Return a call in the text form, given the JSON of its arguments, broken or not."""
    body = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
    if any(marker in body for marker in MARKERS):
        body = body.replace("<", "\\u003c")  # the same to a reader of JSON
    return f"<tool_call>{body}</tool_call>"


def plain(words: str, markers: tuple[str, ...] = MARKERS) -> str:
    """Return words whose markers are broken up, so that nobody takes them for the form's."""
    for marker in markers:
        words = words.replace(marker, f"{marker[0]} {marker[1:]}")
    return words


def _written(piece: str | WrittenCall) -> str:
    if isinstance(piece, str):
        return plain(piece)
    if isinstance(piece.call, str):
        return f"<tool_call>{plain(piece.text)}</tool_call>"
    return call_text(piece.call["name"], json.dumps(piece.call["arguments"], ensure_ascii=False))
