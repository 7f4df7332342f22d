"""Arguments that a format writes as bare text get the types that the tool's JSON schema says."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from art_cli.system.outside import OutsideError, check_json, read_json

Schema = Mapping[str, Any]  # of the parameters of one tool
DEPTH = 16  # of references in a schema
WORDS = {"true": True, "false": False, "null": None, "none": None}  # Python's and JSON's
COMPOSED = ("anyOf", "oneOf", "allOf")


def schemas_by_name(tools: list[Any] | None) -> dict[str, Schema]:
    """Return the schema of the parameters of each tool."""
    functions = [t.get("function", t) for t in tools or []]
    schemas = {f["name"]: f.get("parameters") for f in functions}
    return {name: s if isinstance(s, Mapping) else {} for name, s in schemas.items()}


def typed(name: str, text: str, schema: Schema) -> Any:
    """Return an argument's value. Text that does not read as its type stays: the tool will say so.

    Where text is allowed it is text, so that "17" of an order's number is not 17; where nothing is
    known of it, JSON is read as what it is.
    """
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    kinds = kinds_of(found, schema)
    word = text.strip().lower()
    if "string" in kinds:
        return None if "null" in kinds and word in ("null", "none") else text
    if word in WORDS and (not kinds or _kind(WORDS[word]) in kinds):
        return WORDS[word]
    for read in (read_json, ast.literal_eval):  # a template may write what Python prints
        try:
            value = read(text.strip())
            check_json(value)
        except OutsideError:
            break
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        return value
    return text


def kinds_of(schema: Any, root: Schema) -> set[str]:
    """Return the JSON types that a value may have; none: nothing is known of it."""
    return _kinds(schema, root, DEPTH)


def _kinds(schema: Any, root: Schema, depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or not depth:
        return set()
    if isinstance(reference := schema.get("$ref"), str):
        return _kinds(at(reference, root), root, depth - 1)
    kinds = schema.get("type")
    kinds = {kinds} if isinstance(kinds, str) else {k for k in _list(kinds) if isinstance(k, str)}
    values = [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    kinds = kinds or {_kind(value) for value in values}
    for key in COMPOSED:
        for part in _list(schema.get(key)):
            kinds |= _kinds(part, root, depth - 1)
    return kinds


def _list(value: Any) -> list[Any]:
    """Return a list of a schema: anyone may have written it."""
    return value if isinstance(value, list) else []


def at(reference: str, root: Schema) -> Any:
    """Return what a reference in a schema names; None: nothing."""
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _kind(value: Any) -> str:
    names = {bool: "boolean", type(None): "null", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "array" if isinstance(value, list) else "object")
