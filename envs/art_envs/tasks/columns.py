"""The columns of a row: cells as text, prompts, options, and the form of an answer."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from art_cli import Message, UsageError
from art_envs.tasks.rows import Row
from art_envs.tasks.settings import ANSWER

PLACE = re.compile(r"\{\{|\}\}|\{([^\W\d][^{}\"':\n]*)\}")  # {{, }} or {COLUMN}
CHOICES = "choices"  # {choices} in a prompt
LETTERS = string.ascii_uppercase


def cell(row: Row, column: str, setting: str) -> Any:
    """Return what a row has in a column; a.b is b within a. Raise UsageError with its place."""
    if column in row.values:
        value = row.values[column]
    else:
        value = row.values
        for part in column.split("."):
            if not isinstance(value, dict) or part not in value:
                raise _no_column(row, column, setting)
            value = value[part]
    if value is None or value == "":
        raise UsageError(
            f"{row.place}: {column!r} (env.args.{setting}) is empty; fill it in, or remove the row"
        )
    return value


def _no_column(row: Row, column: str, setting: str) -> UsageError:
    close = get_close_matches(column, list(row.values), n=1)
    return UsageError(
        f"{row.place}: there is no column {column!r} (env.args.{setting}); there are "
        f"{', '.join(map(str, row.values))}." + (f" Did you mean {close[0]!r}?" if close else "")
    )


def text_of(row: Row, column: str, setting: str) -> str:
    """Return a cell as text: a number or true as JSON writes it. Raise UsageError."""
    return _as_text(cell(row, column, setting), row, column, setting)


def texts_of(row: Row, column: str, setting: str) -> list[str]:
    """Return a cell as texts: it is one, or a list of them. Raise UsageError."""
    value = cell(row, column, setting)
    values = value if isinstance(value, list) else [value]
    if not values:
        raise UsageError(f"{row.place}: {column!r} (env.args.{setting}) is an empty list")
    return [_as_text(each, row, column, setting) for each in values]


def _as_text(value: Any, row: Row, column: str, setting: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{row.place}: {column!r} (env.args.{setting}) is {value}, no number")
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{row.place}: {column!r} holds half a surrogate pair") from None
        return value
    is_nested = isinstance(value, dict | list)
    todo = "name what is within it as COLUMN.KEY" if is_nested else "convert the column to text"
    what = f"is a {type(value).__name__}, not text; {todo}"
    raise UsageError(f"{row.place}: {column!r} (env.args.{setting}) {what}")


def opening_of(row: Row, column: str) -> str | list[Message]:
    """Return the input of a row: text, or a conversation that ends with the user's words."""
    value = cell(row, column, "input")
    if not isinstance(value, list):
        return _as_text(value, row, column, "input")
    messages: list[Message] = []
    for each in value:
        role = each.get("role") if isinstance(each, dict) else None
        role = "system" if role == "developer" else role
        content = _joined(each.get("content")) if role else None
        if role not in ("system", "user", "assistant") or content is None:
            raise UsageError(
                f"{row.place}: {column!r} (env.args.input) is a list; expected text, or messages "
                '{"role": "system" | "user" | "assistant", "content": TEXT}'
            )
        messages.append({"role": role, "content": content})
    if not messages or messages[-1]["role"] != "user":
        raise UsageError(f"{row.place}: the messages in {column!r} do not end with the user's")
    return messages


def _joined(content: Any) -> str | None:
    """Join a message's content, text or a list of text parts; None if it has other parts."""
    if isinstance(content, str):
        return content
    texts = [p.get("text") if isinstance(p, dict) else None for p in _listed(content)]
    return "".join(map(str, texts)) if texts and all(isinstance(t, str) for t in texts) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def filled(prompt: str, row: Row, shown: str) -> str:
    """Return the prompt with {COLUMN} replaced, {{ as { and }} as }. Raise UsageError."""

    def put(found: re.Match[str]) -> str:
        column = found.group(1)
        if column is None:
            return found.group()[0]
        if column == CHOICES and shown:
            return shown
        return text_of(row, column, "prompt")

    return PLACE.sub(put, prompt)


def has_place_for_choices(prompt: str) -> bool:
    """Return whether a prompt says where the options go."""
    return any(found.group(1) == CHOICES for found in PLACE.finditer(prompt))


def options_of(row: Row, column: str) -> tuple[list[str], list[str]]:
    """Return the labels and the texts of a row's options. Raise UsageError.

    The cell is a list of texts, which get letters, or {"label": [...], "text": [...]}, as in ARC;
    in a CSV it is the JSON of such a thing.
    """
    value = cell(row, column, "choices")
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    labels = value.get("label") if isinstance(value, dict) else None
    texts = value.get("text") if isinstance(value, dict) else value
    if not isinstance(texts, list) or len(texts) < 2 or len(texts) > len(LETTERS):
        raise UsageError(
            f"{row.place}: {column!r} (env.args.choices) holds no options: expected a list of 2 to "
            f'{len(LETTERS)} texts, or {{"label": [...], "text": [...]}}'
        )
    texts = [_as_text(each, row, column, "choices") for each in texts]
    labels = [str(each) for each in labels] if isinstance(labels, list) else LETTERS[: len(texts)]
    if len(labels) != len(texts):
        raise UsageError(f"{row.place}: {column!r} has {len(labels)} labels, {len(texts)} texts")
    return list(labels), texts


def chosen(target: Any, labels: Sequence[str], texts: Sequence[str]) -> str | None:
    """Return the label that a target means: it is one, or its text, or its number from 0."""
    if str(target) in labels:
        return str(target)
    if target in texts:
        return labels[texts.index(target)]
    number = target if type(target) is int else int(target) if str(target).isdecimal() else -1
    return labels[number] if 0 <= number < len(labels) else None


def said_in(text: str, answer: str | None) -> str | None:
    """Return the part of what was said that is graded; None where it is not there.

    It stands where {answer} does, the last time; up to what follows there, or to the line's end.
    Braces around it are balanced, as in \\boxed{\\frac{1}{2}}.
    """
    if answer is None:
        return text
    before, after = (part.strip() for part in answer.split(ANSWER))
    begin = text.rfind(before)
    if begin < 0:
        return None
    rest = text[begin + len(before) :]
    if before.endswith("{") and after.startswith("}"):
        end = _closing(rest)
    elif after:
        end = rest.find(after)
    else:
        rest = rest.lstrip()
        end = len(rest.split("\n", 1)[0])
    return None if end < 0 else rest[:end].strip()


def _closing(text: str) -> int:
    depth = 1
    for i, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return i
    return -1
