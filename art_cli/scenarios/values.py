"""Arguments for a tool, generated from its JSON schema and from values in earlier results."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from typing import Any

from art_cli.envs.tools import Tool

LONGEST = 80  # characters of a text that is used as an argument
MOST_VALUES = 200  # values remembered per name
OFTEN = 0.3  # probability of giving an optional argument
DEEPEST = 6  # limit of nested objects
NOT_OF_A_NAME = re.compile(r"[\W_]+")


class UnknownValue(Exception):
    """No value is known for an argument, which the message names."""


class KnownValues:
    """Known values by name, and texts for any argument."""

    def __init__(self, given: dict[str, list[str]] | None = None) -> None:
        """Start with the user's values, by the name of an argument."""
        self._named: dict[str, list[Any]] = defaultdict(list)
        self._texts: list[str] = []
        for name, values in (given or {}).items():
            for value in values:
                self._add(name, value)

    def learn(self, result: str) -> None:
        """Remember the values of a result by their keys, or its lines."""
        try:
            self._read(json.loads(result), "")
        except (ValueError, RecursionError):
            for line in result.splitlines():
                self._add("", line.strip())

    def named(self, name: str) -> list[Any]:
        """Return the values of a name, or of a name with the same ending (petId, id)."""
        plain = _plain(name)
        if plain in self._named:
            return self._named[plain]
        near = [n for n in self._named if n and (plain.endswith(n) or n.endswith(plain))]
        return self._named[max(near, key=len)] if near else []

    def arguments(self, tool: Tool, rng: random.Random) -> dict[str, Any]:
        """Return arguments that are valid under the schema. Raise UnknownValue."""
        defs = tool.parameters.get("$defs", {})
        return self._object(tool.parameters, defs, rng, 0)

    def _read(self, value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, each in value.items():
                self._read(each, key)
        elif isinstance(value, list):
            for each in value:
                self._read(each, name.removesuffix("s"))
        elif value is not None and not isinstance(value, bool):
            self._add(name, value)

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, str) and not 0 < len(value) <= LONGEST:
            return
        known = self._named[_plain(name)] if name else self._texts
        if value not in known and len(known) < MOST_VALUES:
            known.append(value)

    def _object(
        self, schema: dict[str, Any], defs: dict[str, Any], rng: random.Random, depth: int
    ) -> dict[str, Any]:
        if depth > DEEPEST:
            raise UnknownValue("a schema that contains itself")
        out: dict[str, Any] = {}
        required = schema.get("required", ())
        for name, each in schema.get("properties", {}).items():
            if name not in required and rng.random() > OFTEN:
                continue
            try:
                out[name] = self._value(name, each, defs, rng, depth)
            except UnknownValue:
                if name in required:
                    raise
        return out

    def _value(
        self, name: str, schema: Any, defs: dict[str, Any], rng: random.Random, depth: int
    ) -> Any:
        schema = _flat(schema, defs)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return rng.choice(schema["enum"])
        if kinds := [
            flat
            for each in schema.get("anyOf") or schema.get("oneOf") or ()
            if (flat := _flat(each, defs)).get("type") != "null"
        ]:
            return self._value(name, rng.choice(kinds), defs, rng, depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = next((k for k in kind if k != "null"), "null")
        if kind == "object":
            return self._object(schema, defs, rng, depth + 1)
        if kind == "array":
            item = schema.get("items", {})
            num = max(1, schema.get("minItems", 1))
            return [
                self._value(name.removesuffix("s"), item, defs, rng, depth + 1) for _ in range(num)
            ]
        if kind == "boolean":
            return rng.random() < 0.5
        return _chosen(name, kind, schema, self.named(name), self._texts, rng)


def _chosen(
    name: str,
    kind: str | None,
    schema: dict[str, Any],
    named: list[Any],
    texts: list[str],
    rng: random.Random,
) -> Any:
    """Return a text or a number, from the schema or earlier results if possible."""
    shown = [
        *schema.get("examples", ()),
        *(schema[k] for k in ("example", "default") if k in schema),
    ]
    known = [*(v for v in shown if v is not None), *named]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        high = schema.get("maximum", max(low, 10))
        numbers = [n for v in known if (n := _number(v)) is not None and low <= n]
        if numbers and rng.random() < 0.8:
            value = rng.choice(numbers)
            return int(value) if kind == "integer" else value
        return rng.randint(int(low), int(high))
    known = [v if isinstance(v, str) else json.dumps(v) for v in known]
    if pattern := schema.get("pattern"):
        known, texts = ([v for v in kind if re.search(pattern, v)] for kind in (known, texts))
    if not (pools := [kind for kind in (known, texts) if kind]):
        raise UnknownValue(name)
    return rng.choice(rng.choice(pools))  # texts without a name are candidates as well


def _flat(schema: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Resolve $ref and allOf at the top of a schema."""
    for _ in range(DEEPEST):
        if not isinstance(schema, dict):
            return {}
        if "$ref" in schema:
            schema = defs.get(schema["$ref"].removeprefix("#/$defs/"), {})
        elif parts := schema.get("allOf"):
            merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in (_flat(each, defs) for each in parts):
                both = {**merged.get("properties", {}), **part.get("properties", {})}
                required = [*merged.get("required", ()), *part.get("required", ())]
                merged = {**merged, **part, "properties": both, "required": required}
            schema = merged
    return schema if isinstance(schema, dict) else {}


def _number(value: Any) -> int | float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None


def _plain(name: str) -> str:
    return NOT_OF_A_NAME.sub("", name).lower()
