"""Checks of a client's untrusted JSON schema before llguidance compiles it.

Time and memory to compile depend on numbers in a schema (a million items at least, a multiple of a
large prime) rather than on its length. So these numbers are added up here first.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard

from art_cli.chat.tool_formats.arguments import DATA, MAPS
from art_cli.errors import ConstraintError

MAX_CHARACTERS = 2**18
MAX_DEPTH = 64  # the limit of vLLM, too
MAX_PROPERTIES = 1000  # per object: compile time grows with their square
MAX_REPEATED = 20_000  # states for counted items and multiples, over the whole schema
MAX_LENGTH = 10_000  # the largest `minLength`
COUNTED = ("minItems", "minProperties", "multipleOf")
# Formats that llguidance knows. By the standard, unknown formats have no effect.
FORMATS = (
    *("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"),
)
DRAFT = re.compile(r"https?://json-schema\.org/draft-0([467])/schema")
OPEN = {"additionalProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
SILENT = {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id"}
# Without bounds, llguidance allows 1e999 and integers of a thousand digits.
BOUNDS = {"minimum": -(10**18), "maximum": 10**18}
ANY = "art.any"  # the name of the definition that allows any value
ANY_VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "number", **BOUNDS},
        {"type": "array", "items": {"$ref": f"#/$defs/{ANY}"}},
        {"type": "object", "additionalProperties": {"$ref": f"#/$defs/{ANY}"}},
    ]
}
# Separators as in json.dumps, or without spaces. If any white space were allowed, an untrained
# policy could write it without end.
WRITTEN = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}


def checked_schema(schema: Any, *, of_arguments: bool = False) -> str:
    """Return a schema as JSON for llguidance. Raises ConstraintError if it is invalid.

    llguidance reports unsupported keywords later, when it compiles the schema. With `of_arguments`,
    the schema is narrowed to values that every reader of calls accepts: objects that list
    properties have no others, and numbers stay within BOUNDS.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ConstraintError(f"a JSON schema is an object, got {schema!r:.100}")
    try:
        text = json.dumps(schema, allow_nan=False)
    except (ValueError, RecursionError, TypeError) as e:
        raise ConstraintError(f"the JSON schema is not JSON: {type(e).__name__}: {e}") from None
    if len(text) > MAX_CHARACTERS:
        raise ConstraintError(
            f"the JSON schema has {len(text)} characters, at most {MAX_CHARACTERS} are supported"
        )
    _check_depth(schema)
    counted = [0.0]
    known = _checked(schema, counted, of_arguments)
    if of_arguments:
        known["$defs"] = {**known.get("$defs", {}), ANY: ANY_VALUE}
    if not counted[0] <= MAX_REPEATED:
        raise ConstraintError(
            f"{', '.join(COUNTED)} of the JSON schema add up to more than {MAX_REPEATED}"
        )
    # llguidance reads settings from the schema. A client must not set them.
    return json.dumps({"x-guidance": WRITTEN} | known)


def _check_depth(schema: Any) -> None:
    level, depth = [schema], 0
    while level:
        if depth > MAX_DEPTH:
            raise ConstraintError(f"the JSON schema is nested more than {MAX_DEPTH} levels deep")
        inside = (v.values() if isinstance(v, dict) else v for v in level)
        level = [each for some in inside for each in some if isinstance(each, dict | list)]
        depth += 1


def _checked(schema: Any, counted: list[float], closed: bool) -> Any:
    """Return a schema without keywords that have no effect; add its counts to `counted`."""
    if isinstance(schema, list):
        return [_checked(each, counted, closed) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "$schema" and isinstance(value, str) and (draft := DRAFT.match(value)):
            value = f"http://json-schema.org/draft-0{draft[1]}/schema#"  # as llguidance knows it
        if key == "x-guidance" or (key == "format" and value not in FORMATS):
            continue
        if key in COUNTED and _is_number(value):
            counted[0] += abs(value)
        if key == "minLength" and _is_number(value) and value > MAX_LENGTH:
            raise ConstraintError(f"minLength of the JSON schema is more than {MAX_LENGTH}")
        if key in MAPS and isinstance(value, dict):
            if len(value) > MAX_PROPERTIES:
                raise ConstraintError(
                    f"{key} of the JSON schema has {len(value)} entries, at most {MAX_PROPERTIES} "
                    "are supported"
                )
            made[key] = {name: _checked(each, counted, closed) for name, each in value.items()}
        else:  # the parts of allOf do not know each other's properties
            inside = closed and key != "allOf"
            made[key] = value if key in DATA else _checked(value, counted, inside)
    return _closed(made) if closed else made


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Narrow a schema to the values that `checked_schema` allows for arguments."""
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not schema.keys() - SILENT:
        return {**schema, "$ref": f"#/$defs/{ANY}"}
    if {"number", "integer"} & set(kinds) and "multipleOf" not in schema:
        for side, bound in BOUNDS.items():
            if f"exclusive{side.capitalize()}" not in schema:
                schema.setdefault(side, bound)
    if "array" in kinds and not {"items", "prefixItems"} & schema.keys():
        schema["items"] = {"$ref": f"#/$defs/{ANY}"}
    if "object" in kinds and not OPEN & schema.keys():
        schema["additionalProperties"] = (
            False if "properties" in schema else {"$ref": f"#/$defs/{ANY}"}
        )
    return schema


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
