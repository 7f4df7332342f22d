"""Serialization of arguments by their place and style (OpenAPI 3.1.1, section 4.8.12)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from art_cli import InvalidCallError

Place = Literal["path", "query", "header", "cookie", "body", "text", "form", "multipart"]
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

    argument: str  # how the tool calls it
    name: str  # how the API does
    place: Place
    style: str = "form"
    explode: bool = True
    is_json: bool = False  # always JSON: the document has `content` instead of `schema`
    media: str = ""  # the content type of a body
    # Of a form: how its fields are written, by name, and those that are files.
    fields: tuple[Parameter, ...] = ()
    files: tuple[str, ...] = ()

    def segment(self, value: Any) -> str:
        """Serialize the value as a path segment. Raises InvalidCallError."""
        begin, between = {
            "simple": ("", ","),
            "label": (".", "." if self.explode else ","),
            "matrix": (";", ";" if self.explode else ","),
        }[self.style]
        name, parts = _quoted(self.name), [_quoted(part) for part in self._parts(value)]
        if self.style == "matrix":
            if isinstance(value, list) and self.explode:
                parts = [f"{name}={part}" for part in parts]
            elif not (isinstance(value, dict) and self.explode):
                begin = f";{name}="
        text = between.join(parts)
        if not text or (not begin and text in (".", "..")):
            raise InvalidCallError(f"{self.argument} must not be {text!r}")
        return begin + text

    def header(self, value: Any) -> str:
        """Serialize the value as a header. Raises InvalidCallError."""
        text = ",".join(self._parts(value))
        if not (text.isascii() and text.isprintable()):
            raise InvalidCallError(f"{self.argument} must be printable ASCII on one line")
        return text

    def cookie(self, value: Any) -> str:
        """Serialize the value as a cookie, `name=value`. Raises InvalidCallError."""
        return "; ".join(f"{name}={_quoted(text)}" for name, text in self.pairs(value))

    def pairs(self, value: Any) -> list[tuple[str, str]]:
        """Serialize the value as name-value pairs of a query or a form."""
        if isinstance(value, dict) and self.style == "deepObject":
            return list(_deep(self.name, value))
        if self.explode and not self.is_json:
            if isinstance(value, list):
                return [(self.name, plain(each)) for each in value]
            if isinstance(value, dict):
                return [(name, plain(each)) for name, each in value.items()]
        between = BETWEEN.get(self.style, ",")
        return [(self.name, between.join(self._parts(value)))] if value != [] else []

    def _parts(self, value: Any) -> list[str]:
        """Split a value into the strings to join. An object yields its property names, too."""
        if self.is_json:
            return [json.dumps(value, ensure_ascii=False)]
        if isinstance(value, list):
            return [plain(each) for each in value]
        if isinstance(value, dict) and self.explode:
            return [f"{name}={plain(each)}" for name, each in value.items()]
        if isinstance(value, dict):
            return [text for name, each in value.items() for text in (name, plain(each))]
        return [plain(value)]


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


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="=")
    except UnicodeEncodeError as e:
        raise InvalidCallError(f"an argument is no text: {e}") from None
