"""Swagger 2 as OpenAPI 3 has it: the document's servers and schemes, and one operation at a time.

{in: body, schema: Pet}                  requestBody of application/json
{in: formData, type: file}               requestBody of multipart/form-data
{in: query, collectionFormat: pipes}     style pipeDelimited, explode false
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from art_envs.openapi_tools.parameters import FORM, MULTIPART

# The ways to join the items of a list: (style, explode). A style that a place does not have, or
# that OpenAPI 3 does not know, is refused there.
FORMATS = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tsv", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
NOT_SCHEMA = ("name", "in", "description", "required", "collectionFormat", "allowEmptyValue")


class NotWritten(Exception):
    """Raised for something that no request can express; the message names it."""


def is_swagger(root: Any) -> bool:
    """Return whether a document is one of Swagger 2."""
    return isinstance(root, dict) and str(root.get("swagger", "")).startswith("2")


def upgraded(root: dict[str, Any]) -> dict[str, Any]:
    """Return a document with OpenAPI 3's `servers` and `securitySchemes` beside its own fields."""
    known = {
        name: {"type": "http", "scheme": "basic"} if _is_basic(how) else how
        for name, how in (root.get("securityDefinitions") or {}).items()
    }
    servers = [{"url": _url(root, root.get("schemes"))}]
    return {**root, "servers": servers, "components": {"securitySchemes": known}}


def operation(
    root: dict[str, Any], found: dict[str, Any], parameters: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Convert an operation with its resolved parameters to OpenAPI 3.

    Raise NotWritten.
    """
    body: list[dict[str, Any]] = []
    fields: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for each in parameters:
        (body if each["in"] == "body" else fields if each["in"] == "formData" else others).append(
            each
        )
    if len(body) > 1 or (body and fields):
        raise NotWritten("it has more than one body")
    made = {**found, "parameters": [_parameter(each) for each in others]}
    kinds = found.get("consumes", root.get("consumes")) or []
    if body:
        made["requestBody"] = _body(body[0], kinds)
    if fields:
        made["requestBody"] = _form(fields, kinds)
    own = found.get("schemes")
    if own and _scheme(root.get("schemes")) not in own:
        made["servers"] = [{"url": _url(root, own)}]
    return made


def _parameter(each: dict[str, Any]) -> dict[str, Any]:
    made = {k: each[k] for k in ("name", "in", "description", "required") if k in each}
    made["schema"] = {k: v for k, v in each.items() if k not in NOT_SCHEMA}
    if each.get("type") != "array":
        return made
    style, explode = _joined(each)
    if style == "form" and each["in"] in ("path", "header") and not explode:
        style = "simple"
    return made | {"style": style, "explode": explode}


def _joined(each: dict[str, Any]) -> tuple[str, bool]:
    items = each.get("items")
    if isinstance(items, dict) and items.get("type") == "array":
        raise NotWritten(f"its parameter {each['name']!r} is a list of lists")
    name = each.get("collectionFormat", "csv")
    if name not in FORMATS:
        known = ", ".join(FORMATS)
        raise NotWritten(f"the collectionFormat of {each['name']!r} is {name!r}, none of {known}")
    return FORMATS[name]


def _body(each: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
    media = {"schema": each.get("schema") or {}}
    content = dict.fromkeys(kinds or ["application/json"], media)
    return {"required": bool(each.get("required")), "content": content}


def _form(fields: list[dict[str, Any]], kinds: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    encoding: dict[str, Any] = {}
    for each in fields:
        name, schema = each["name"], {k: v for k, v in each.items() if k not in NOT_SCHEMA}
        if "description" in each:
            schema["description"] = each["description"]
        if each.get("type") == "file":
            schema |= {"type": "string", "format": "binary"}
        if each.get("type") == "array":
            style, explode = _joined(each)
            if style == "tsv":
                raise NotWritten(f"the items of its field {name!r} are separated by tabs")
            encoding[name] = {"style": style, "explode": explode}
        properties[name] = schema
    required = [each["name"] for each in fields if each.get("required")]
    schema = {"type": "object", "properties": properties, "required": required}
    has_file = any(each.get("type") == "file" for each in fields)
    is_multipart = has_file or (MULTIPART in kinds and FORM not in kinds)
    kind = MULTIPART if is_multipart else FORM
    media = {"schema": schema, "encoding": encoding}
    return {"required": bool(required), "content": {kind: media}}


def _is_basic(how: Any) -> bool:
    return isinstance(how, dict) and how.get("type") == "basic"


def _scheme(schemes: Any) -> str:
    listed = schemes if isinstance(schemes, list) else []
    return next((s for s in ("https", "http") if s in listed), listed[0] if listed else "https")


def _url(root: dict[str, Any], schemes: Any) -> str:
    """Return the base URL of an operation, relative to the document if there is no host."""
    base = str(root.get("basePath") or "/")
    return f"{_scheme(schemes)}://{root['host']}{base}" if root.get("host") else base
