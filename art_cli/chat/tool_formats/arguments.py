"""Types for arguments that a format writes as bare text, taken from the tool's JSON schema."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from art_cli.system.untrusted import UntrustedValueError, check_json, read_json

Schema = Mapping[str, Any]  # of the parameters of one tool
DEPTH = 16  # maximum depth of references in a schema
WORDS = {"true": True, "false": False, "null": None, "none": None}  # in Python and in JSON
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
DATA = ("enum", "const", "default", "examples", "required")  # keywords whose values are not schemas
COMPOSED = ("anyOf", "oneOf", "allOf")
SAME = (*COMPOSED, "if", "then", "else", "not", "dependentSchemas")  # subschemas for the same value


def schemas_by_name(tools: list[Any] | None) -> dict[str, Schema]:
    """Return the parameters' schema of each tool by name."""
    functions = [t.get("function", t) for t in tools or []]
    schemas = {f["name"]: f.get("parameters") for f in functions}
    return {name: s if isinstance(s, Mapping) else {} for name, s in schemas.items()}


def typed(name: str, text: str, schema: Schema) -> Any:
    """Return the first interpretation of an argument's text that the schema allows.

    The interpretations are a constant (`true`, `null`), JSON, a Python literal and plain text. "17"
    becomes 17 for an integer, for `integer | string` and without a schema, and stays text for a
    string. If the schema allows none, the first is returned, and the tool reports the error.
    """
    maps = [part.get("properties") for part in level(schema, schema)]
    found = [each[name] for each in maps if isinstance(each, Mapping) and name in each]
    readings = [*_readings(text), text]
    good = (r for r in readings if not found or any(allows(each, r, schema) for each in found))
    return next(good, readings[0])


def _readings(text: str) -> Iterator[Any]:
    """Yield the interpretation of a text as a constant, JSON or a Python literal."""
    stripped = text.strip()
    if (word := stripped.lower()) in WORDS:
        yield WORDS[word]
        return
    for read in (read_json, ast.literal_eval):  # a template may write Python's repr
        try:
            value = read(stripped)
            check_json(value)
        except UntrustedValueError:
            return
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        yield value
        return


def allows(schema: Any, value: Any, root: Schema, depth: int = DEPTH) -> bool:
    """Return whether a schema's types and enumerations allow a value. Ignore other keywords."""
    if not isinstance(schema, Mapping) or not depth:
        return True

    def each(key: str) -> list[bool]:
        return [allows(part, value, root, depth - 1) for part in _list(schema.get(key))]

    if value is None and schema.get("nullable") is True:  # of OpenAPI 3.0
        return True
    reference = schema.get("$ref")
    if isinstance(reference, str) and not allows(at(reference, root), value, root, depth - 1):
        return False
    values = [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    if values and not any(type(v) is type(value) and v == value for v in values):
        return False
    types = _types(schema)
    if types and not types & {*_kind_and_wider(value)}:
        return False
    either = [each(key) for key in ("anyOf", "oneOf")]
    return all(each("allOf")) and all(any(parts) for parts in either if parts)


def _kind_and_wider(value: Any) -> Iterator[str]:
    kind = _kind(value)
    yield kind
    if kind == "integer":
        yield "number"
    if kind == "number" and value.is_integer():
        yield "integer"


def _types(schema: Schema) -> set[str]:
    kinds = schema.get("type")
    return {kinds} if isinstance(kinds, str) else {k for k in _list(kinds) if isinstance(k, str)}


def kinds_of(schema: Any, root: Schema) -> set[str]:
    """Return the JSON types that a value may have; an empty set means unknown."""
    return _kinds(schema, root, DEPTH)


def _kinds(schema: Any, root: Schema, depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or not depth:
        return set()
    if isinstance(reference := schema.get("$ref"), str):
        return _kinds(at(reference, root), root, depth - 1)
    kinds = _types(schema)
    values = [*_list(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    kinds = kinds or {_kind(value) for value in values}
    if kinds and schema.get("nullable") is True:
        kinds |= {"null"}
    for key in COMPOSED:
        for part in _list(schema.get(key)):
            kinds |= _kinds(part, root, depth - 1)
    return kinds


def _list(value: Any) -> list[Any]:
    """Return a list of a schema, or [] if an invalid schema has something else."""
    return value if isinstance(value, list) else []


def at(reference: str, root: Schema) -> Any:
    """Resolve a reference in a schema; None if its target does not exist."""
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def level(schema: Any, root: Schema) -> Iterator[Schema]:
    """Yield a schema and those of the same value nested in it or referred to, found in `root`."""
    rest, seen = [schema], set[int]()
    while rest:
        found = rest.pop()
        if not isinstance(found, Mapping) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        inner: list[Any] = []
        if isinstance(ref := found.get("$ref"), str):
            inner.append(root if ref == "#" else at(ref, root))
        for key in SAME:
            part = found.get(key)
            if key == "dependentSchemas" and isinstance(part, Mapping):
                inner += part.values()
            else:
                inner += _list(part) or [part]
        rest += reversed(inner)


def _kind(value: Any) -> str:
    names = {bool: "boolean", type(None): "null", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "array" if isinstance(value, list) else "object")
