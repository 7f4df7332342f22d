"""Validation of values from outside (a client, a model, an env) before use.

A valid value can be written to any file: it is valid Unicode and strict JSON, and not nested too
deeply for Python to walk it.
"""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

MAX_DEPTH = 64  # nesting depth of lists and objects
ROW_DEPTH = MAX_DEPTH + 16  # of a row written by a run, which contains such values
MAX_DIGITS = 400  # digits of an integer; Python refuses to print more than 4300
TOO_LARGE = 10**MAX_DIGITS
MAX_VALUES = 2**20  # values in one JSON text, of up to a hundred bytes each in memory
MAX_TEXT = 2**22  # characters of one text by an env
SHOWN = 10_000  # stored characters of an error
# Bound of numbers for arithmetic: their squares, products and sums are finite.
LARGEST_NUMBER = 1e60
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class UntrustedValueError(ValueError):
    """A value that cannot be used or stored. The message gives the reason."""


def read_json(source: str | bytes) -> Any:
    """Return the value of a JSON text.

    Unlike Python's own parser, it rejects NaN, duplicate keys and lone surrogates, with
    UntrustedValueError. Raises ValueError with the position of a syntax error.
    """
    try:
        text = source if isinstance(source, str) else source.decode("utf-8-sig")
        if sum(map(text.count, ",[{")) > MAX_VALUES:
            raise UntrustedValueError(f"it has more than {MAX_VALUES} values")
        value = json.loads(text, object_pairs_hook=_unique, parse_int=_integer)
    except UnicodeDecodeError as e:
        raise UntrustedValueError(f"it is not UTF-8 at byte {e.start}") from None
    except RecursionError:
        raise UntrustedValueError(f"it is nested more than {MAX_DEPTH} deep") from None
    check_json(value)
    return value


def check_json(value: Any) -> None:
    """Raise UntrustedValueError if `value` is not one that `read_json` may return."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        inner: list[Any] = []
        for each in level:
            if type(each) is str and each.isascii():  # fast path for most values
                continue
            if depth == MAX_DEPTH and isinstance(each, dict | list | tuple):
                raise UntrustedValueError(f"it is nested more than {MAX_DEPTH} deep")
            if isinstance(each, dict):
                if not all(isinstance(key, str) for key in each):
                    raise UntrustedValueError("a key of an object is not text")
                inner += each.keys()
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
            else:
                _check_scalar(each)
        level = inner


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether it is a number of usable size. Booleans are not."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -LARGEST_NUMBER < value < LARGEST_NUMBER
    )


def wrong_field(row: Any, fields: dict[Any, tuple[str, ...]]) -> str | None:
    """Return the name of the first field that is missing or has a wrong type, or None."""
    for types, names in fields.items():
        for name in names:
            value = row.get(name, ...) if isinstance(row, dict) else ...
            is_usable = is_number(value) or not isinstance(value, int | float)
            if not isinstance(value, types) or not (is_usable or isinstance(value, bool)):
                return name
    return None


def is_too_deep(value: Any, text: bytes) -> bool:
    """Return whether the value of a JSON text is nested deeper than ROW_DEPTH.

    Faster than `check_json` for long lists of numbers, whose items are not visited.
    """
    if text.count(b"[") + text.count(b"{") <= ROW_DEPTH:
        return False
    depth = deepest = 0
    for bracket in text.translate(None, NOT_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest <= ROW_DEPTH:  # an upper bound, since brackets in strings count too
        return False
    level = [value]
    for _ in range(ROW_DEPTH):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for each in inner for one in each if isinstance(one, dict | list)]
    return bool(level)


def check_text(text: Any) -> str:
    """Return the value if it is text that can be stored. Raises UntrustedValueError if not."""
    if not isinstance(text, str):
        raise UntrustedValueError(f"expected text, got {type(text).__name__}")
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as e:
        half = ord(text[e.start])
        raise UntrustedValueError(f"it holds half a surrogate pair, \\u{half:04x}") from None
    return text


def storable(text: str) -> str:
    """Return the text in a form that any file can store, shortened if it is very long."""
    if len(text) > SHOWN:
        text = f"{text[: SHOWN // 2]}\n... ({len(text)} characters) ...\n{text[-SHOWN // 2 :]}"
    return text.encode(errors="backslashreplace").decode()


def _check_scalar(value: Any) -> None:
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise UntrustedValueError(f"{value} is no number in JSON")
    elif isinstance(value, int) and abs(value) >= TOO_LARGE:
        raise UntrustedValueError(f"an integer has more than {MAX_DIGITS} digits")
    elif value is not None and not isinstance(value, int | float):
        raise UntrustedValueError(f"{type(value).__name__} is not a type of JSON")


def _integer(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise UntrustedValueError(f"an integer has more than {MAX_DIGITS} digits")
    return int(digits)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise UntrustedValueError(f"the key {twice!r:.200} stands there twice")
    return found
