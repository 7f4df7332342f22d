"""Rendering of messages in a terminal: text, calls and results, with long parts shortened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from art_cli.chat.turns import read_turn
from art_cli.system.untrusted import is_number
from art_cli.terminal.text import masked, visible

SHOWN = 600  # characters of a text, unless --full is given


def messages_of(row: dict[str, Any]) -> list[Any]:
    """Return the main conversation of a trajectory, or nothing if it is damaged."""
    found = row.get("messages")
    return found if isinstance(found, list) else []


def turn_advantages(row: dict[str, Any]) -> list[float | None]:
    """Return, for each message, the advantage of its turn, or None.

    Empty if turns have no advantages of their own, or if an agent's messages are not the turns.
    """
    talk, given = messages_of(row), row.get("turn_advantages")
    turns = [n for n, m in enumerate(talk) if isinstance(m, dict) and m.get("role") == "assistant"]
    if not isinstance(given, list) or len(given) != len(turns) or not all(map(is_number, given)):
        return []
    by_message = dict(zip(turns, given, strict=True))
    return [by_message.get(n) for n in range(len(talk))]


def lines_of(message: Any, *, full: bool) -> Iterator[tuple[str, Text]]:
    """Yield the parts of a message with their labels: the speaker, or "" for a continuation."""
    if not isinstance(message, dict):
        yield "?", plain(str(message), full=full)
        return
    role, content = str(message.get("role")), str(message.get("content") or "")
    if role == "assistant":
        label = role
        for part in _turn(message, content, full=full):
            yield label, part
            label = ""
        return
    name = message.get("name")
    style = "red" if message.get("is_error") else ""
    text = plain(content or "(nothing)", full=full, style=style)
    yield role, Text.assemble((f"{foreign(str(name))}: ", "dim"), text) if name else text


def plain(text: str, *, full: bool, style: str = "") -> Text:
    """Return untrusted text, made harmless and shortened if it is long."""
    cut = 0 if full else max(0, len(text) - SHOWN)
    shown = Text(foreign(text[: len(text) - cut].strip()), style)
    return shown.append(f" [{cut} more characters: --full]", "dim") if cut else shown


def foreign(text: str) -> str:
    """Return text of a model, an env or a judge in a form that is safe for any terminal."""
    return visible(masked(text))


def _turn(message: dict[str, Any], content: str, *, full: bool) -> Iterator[Text]:
    turn = read_turn(content)
    if turn.thought and not full:
        yield Text(f"(thinking, {len(turn.thought)} characters: --full)", "dim")
    elif turn.thought:
        yield Text(foreign(turn.thought), "dim italic")
    if "tool_calls" not in message:  # no tool was called, even if the text looks like a call
        yield plain(turn.said or "(says nothing)", full=full)
        return
    for piece in turn.pieces:
        if isinstance(piece, str):
            if piece.strip():
                yield plain(piece, full=full)
        elif isinstance(piece.call, str):
            yield Text("unreadable call: ", "red").append_text(plain(piece.text, full=full))
        else:
            yield _call(piece.call["name"], piece.call["arguments"], full=full)


def _call(name: str, arguments: dict[str, Any], *, full: bool) -> Text:
    given = ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items()
    )
    return Text.assemble((foreign(name), "cyan"), "(", plain(given, full=full), ")")
