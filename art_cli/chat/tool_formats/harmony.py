"""Harmony, the format of gpt-oss: a turn is messages on channels, and a call is sent to a tool.

<|channel|>analysis<|message|>I look it up.<|end|><|start|>assistant<|channel|>commentary
to=functions.get_order <|constrain|>json<|message|>{"order_id": "W42"}<|call|>
"""

from __future__ import annotations

import re

from art_cli.chat.turns import Turn, WrittenCall
from art_cli.system.untrusted import read_json
from art_cli.types import ToolCall

MESSAGE = "<|message|>"
HEAD = re.compile(r"<\|start\|>|<\|channel\|>|\bto=")
END = re.compile(r"<\|end\|>|<\|call\|>|<\|return\|>|\Z")
RECIPIENT = re.compile(r"\bto=(?P<to>[^\s<]+)")
THINKING = re.compile(r"<\|channel\|>\s*analysis")


def read_harmony(text: str, shape: str) -> Turn:
    """Parse a turn. Text outside of channels is normal text."""
    thoughts: list[str] = []
    pieces: list[str | WrittenCall] = []
    place = 0
    while (begin := text.find(MESSAGE, place)) >= 0:
        head = text[place:begin]
        found = HEAD.search(head)
        pieces.append(head[: found.start()].rstrip() if found else "")
        end = END.search(text, begin)
        assert end
        body = text[begin + len(MESSAGE) : end.start()]
        if recipient := RECIPIENT.search(head):
            name = recipient["to"].removeprefix("functions.")
            pieces.append(_call(text[place : end.end()], name, body, shape))
        elif THINKING.search(head):
            thoughts.append(body.strip())
        else:
            pieces.append(body)
        place = end.end()
    rest = text[place:]
    cut_off = HEAD.search(rest)  # cut off before any content
    pieces.append(rest[: cut_off.start()] if cut_off else rest)
    kept = tuple(piece for piece in pieces if piece)
    said = "".join(piece if isinstance(piece, str) else piece.text for piece in kept)
    return Turn(thought="\n".join(thoughts), said=said, pieces=kept)


def _call(text: str, name: str, body: str, shape: str) -> WrittenCall:
    try:
        arguments = read_json(body)
    except ValueError as e:
        why = f"error: the arguments of {name} are not valid JSON ({e}); expected {shape}"
        return WrittenCall(text=text, call=why, name=name)
    if not isinstance(arguments, dict):
        why = f"error: the arguments are not an object; expected {shape}"
        return WrittenCall(text=text, call=why, name=name)
    return WrittenCall(text=text, call=ToolCall(name=name, arguments=arguments))
