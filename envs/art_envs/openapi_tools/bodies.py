"""The body of a request: JSON, text, or a form, whose fields may be files."""

from __future__ import annotations

from typing import Any

from art_cli import InvalidCallError
from art_envs.openapi_tools.document import Document
from art_envs.openapi_tools.parameters import (
    FORM,
    MULTIPART,
    Parameter,
    Quote,
    form_quoted,
    in_bytes,
    plain,
)
from art_envs.openapi_tools.shapes import Media, RequestBody

FILES = ("binary", "byte", "base64")  # formats of a file field


def body_of(
    document: Document, body: Any, where: str, argument: str, left_out: str
) -> tuple[dict[str, Any], Parameter]:
    """Return (the body's schema and whether it is required, the parameter that sends it).

    JSON is preferred to forms, and forms to text. Raises UsageError.
    """
    place = f"{where}.requestBody"
    body = document.shaped(RequestBody, body, place)
    content: dict[str, Any] = body.get("content") or {}
    kinds = sorted(content, key=_rank)
    if not kinds or _rank(kinds[0]) == _NONE:
        what = f"it takes {', '.join(content) or 'nothing'}, and only JSON, forms and text can"
        raise document.error(place, f"{what} be sent; {left_out}")
    media = document.shaped(Media, content[kinds[0]], f"{place}.content.{kinds[0]}")
    schema = media.get("schema", {})
    required = bool(body.get("required"))
    plain_kind = _plain_kind(kinds[0])
    if plain_kind not in (FORM, MULTIPART):
        sent = "body" if is_json(plain_kind) else "text"
        parameter = Parameter(argument=argument, name=argument, place=sent, media=kinds[0])
        return {"schema": schema, "required": required}, parameter
    encoding = media.get("encoding") or {}
    whole = document.resolved(schema, place)
    properties = whole.get("properties") if isinstance(whole, dict) else None
    fields = tuple(
        Parameter(
            argument=argument,
            name=name,
            place="form",
            style=how.get("style", "form"),
            explode=how.get("explode", how.get("style", "form") in ("form", "deepObject")),
        )
        for name, how in encoding.items()
        if how.keys() & {"style", "explode"}
    )
    files = tuple(
        name
        for name, each in (properties.items() if isinstance(properties, dict) else ())
        if _is_file(document.resolved(each, place))
    )
    sent = "form" if plain_kind == FORM else "multipart"
    parameter = Parameter(argument=argument, name=argument, place=sent, fields=fields, files=files)
    return {"schema": schema, "required": required}, parameter


def content_of(p: Parameter, value: Any) -> dict[str, Any]:
    """Return the body as keyword arguments of httpx. Raises InvalidCallError."""
    if p.place == "body":
        return {"json": value}
    if p.place == "text":
        return {"content": in_bytes(plain(value)), "headers": {"Content-Type": p.media}}
    if not isinstance(value, dict):
        raise InvalidCallError(f"{p.argument} must be an object, with the fields of the form")
    own = {field.name: field for field in p.fields}
    encode = form_quoted if p.place == "form" else str
    pairs = [p for name, each in value.items() for p in _fields(own.get(name), name, each, encode)]
    if p.place == "form":
        text = "&".join(f"{name}={text}" for name, text in pairs)
        return {"content": text.encode(), "headers": {"Content-Type": FORM}}
    # (None, text) is a field that is not a file.
    return {"files": [(n, (n if n in p.files else None, in_bytes(text))) for n, text in pairs]}


def is_json(kind: str) -> bool:
    """Return whether a content type is JSON."""
    found = _plain_kind(kind)
    return found in ("application/json", "*/*", "text/json") or found.endswith("+json")


def _fields(own: Parameter | None, name: str, value: Any, encode: Quote) -> list[tuple[str, str]]:
    """Return a form field as pairs. By default a list repeats the field, and an object is JSON."""
    if own is not None:
        return own.pairs(value, encode)
    values = value if isinstance(value, list) else [value]
    return [(encode(name), encode(plain(each))) for each in values]


def _is_file(schema: Any) -> bool:
    is_media = isinstance(schema, dict) and "contentMediaType" in schema
    return is_media or (isinstance(schema, dict) and schema.get("format") in FILES)


def _plain_kind(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()


_NONE = 9


def _rank(kind: str) -> int:
    """Return the preference for a content type, lowest first; _NONE: it cannot be sent."""
    found = _plain_kind(kind)
    if is_json(found):
        return 0
    known = {FORM: 1, MULTIPART: 2}
    return known.get(found, 3 if found.startswith("text/") else _NONE)
