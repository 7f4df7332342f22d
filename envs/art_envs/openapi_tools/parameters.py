"""Serialization of arguments by their place and style (OpenAPI 3.1.1, section 4.8.12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, quote_plus, unquote

from art_cli import InvalidCallError

Place = Literal["path", "query", "header", "cookie", "body", "text", "form", "multipart"]
Quote = Callable[[str], str]
STYLES = {  # by place; the first is the default
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
BETWEEN = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One argument of a tool."""

    argument: str  # its name in the tool
    name: str  # its name in the API
    place: Place
    style: str = "form"
    explode: bool = True
    is_json: bool = False  # always JSON: the document has `content` instead of `schema`
    media: str = ""  # the content type of a body
    # Of a form: the serialization of its fields by name, and the names of its files.
    fields: tuple[Parameter, ...] = ()
    files: tuple[str, ...] = ()

    def segment(self, value: Any) -> str:
        """Serialize the value as a path segment. Raises InvalidCallError."""
        begin, between = {
            "simple": ("", ","),
            "label": (".", "." if self.explode else ","),
            "matrix": (";", ";" if self.explode else ","),
        }[self.style]
        name, parts = quoted(self.name), self._parts(value, quoted)
        if self.style == "matrix":
            if isinstance(value, list) and self.explode:
                parts = [f"{name}={part}" for part in parts]
            elif not (isinstance(value, dict) and self.explode):
                begin = f";{name}="
        text = self._joined(parts, between, value)
        if not text or begin + text in (".", ".."):
            raise InvalidCallError(f"{self.argument} must not be {text!r}")
        return begin + text

    def header(self, value: Any) -> str:
        """Serialize the value as a header. Raises InvalidCallError."""
        text = self._joined(self._parts(value, str), ",", value)
        if not (text.isascii() and text.isprintable() and text == text.strip()):
            what = "printable ASCII on one line, without spaces at its ends"
            raise InvalidCallError(f"{self.argument} must be {what}")
        return text

    def cookie(self, value: Any) -> str:
        """Serialize the value as a cookie, `name=value`. Raises InvalidCallError."""
        pairs = self.pairs(value, quoted, comma=quoted(","))
        return "; ".join(f"{name}={text}" for name, text in pairs)

    def pairs(self, value: Any, encode: Quote, comma: str = ",") -> list[tuple[str, str]]:
        """Serialize the value as name-value pairs of a query or a form, each of them quoted.

        `comma` separates the items of a list in the style `form`. Raises InvalidCallError.
        """
        if isinstance(value, dict) and self.style == "deepObject":
            return [(encode(name), encode(text)) for name, text in _deep(self.name, value)]
        name = encode(self.name)
        if (self.explode or self.style == "deepObject") and not self.is_json:
            if isinstance(value, list):
                return [(name, encode(plain(each))) for each in value]
            if isinstance(value, dict):
                return [(encode(key), encode(plain(each))) for key, each in value.items()]
        sign = BETWEEN.get(self.style, ",")
        between = comma if sign == "," else encode(sign)
        return [(name, self._joined(self._parts(value, encode), between, value))] * (value != [])

    def _joined(self, parts: list[str], between: str, value: Any) -> str:
        """Join the quoted parts of a value. Raise InvalidCallError if one has the separator."""
        is_joined = isinstance(value, list | dict) and not self.is_json
        if is_joined and any(between in part for part in parts):
            what = f"{unquote(between)!r} separates its parts, so none can have it"
            raise InvalidCallError(f"{self.argument}: {what}")
        return between.join(parts)

    def _parts(self, value: Any, encode: Quote) -> list[str]:
        """Return the quoted strings of a value, to be joined. An object has its keys among them."""
        if self.is_json:
            return [encode(json.dumps(value, ensure_ascii=False))]
        if isinstance(value, list):
            return [encode(plain(each)) for each in value]
        if isinstance(value, dict) and self.explode:
            if any("=" in encode(key) for key in value):
                raise InvalidCallError(f"{self.argument}: a name of a property cannot have '='")
            return [f"{encode(name)}={encode(plain(each))}" for name, each in value.items()]
        if isinstance(value, dict):
            return [encode(text) for name, each in value.items() for text in (name, plain(each))]
        return [encode(plain(value))]


def plain(value: Any) -> str:
    """Convert a value to text: a string stays as it is, other values become JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield `a[b]=c`. OpenAPI leaves nested objects and lists open; follow common servers."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _deep(f"{name}[{key}]", each)
    else:
        for each in value if isinstance(value, list) else [value]:
            yield name, plain(each)


def quoted(text: str) -> str:
    """Percent-encode all but letters, digits and `_.-~`. Raises InvalidCallError."""
    return quote(in_bytes(text), safe="")


def form_quoted(text: str) -> str:
    """Encode as forms do: a space becomes `+`. Raises InvalidCallError."""
    return quote_plus(in_bytes(text), safe="")


def in_bytes(text: str) -> bytes:
    """Return a text in UTF-8. Raises InvalidCallError for half a surrogate pair."""
    try:
        return text.encode()
    except UnicodeEncodeError as e:
        raise InvalidCallError(f"an argument is no text: {e}") from None
