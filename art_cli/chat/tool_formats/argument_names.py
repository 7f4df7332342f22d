"""Aliases for arguments whose names a format or an API does not allow.

    the schema's             ids[]      $filter    from
    in Python (LFM, Llama)   ids        filter     arg_from
    Anthropic's API          ids        filter     from

Properties of nested objects are renamed only for a format that writes them without quotes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from art_cli.chat.tool_formats.arguments import DATA, MAPS, SAME, Schema, at, level
from art_cli.system.aliases import Alphabet, aliases
from art_cli.system.untrusted import read_json

NAMED = ("properties", "dependentSchemas", "dependentRequired")  # contain names of properties
MOST_PUT = 100  # replaced references: each definition may contain two of the next


class _TooManyError(Exception):
    """A schema grows too large. Its arguments keep their names."""


class ArgumentNames:
    """The aliases of one tool's arguments. `nested` covers the properties of nested objects."""

    def __init__(self, schema: Any, alphabet: Alphabet | None, *, nested: bool) -> None:
        self._nested = nested
        self._aliases: dict[str, str] = {}  # from name to alias
        self._names: dict[str, str] = {}  # from alias to name
        self.schema = schema  # in the form that the model sees
        if alphabet is None or not isinstance(schema, Mapping):
            return
        top = dict.fromkeys(_properties_of(schema, schema))
        if not nested and all(map(alphabet.allows, top)):
            return
        known = top | dict.fromkeys(name for part in _all(schema) for name in _named(part))
        top = known if nested else top
        # An alias must also differ from the names of nested properties, which are not renamed.
        names = [name for name in known if name in top or alphabet.allows(name)]
        pairs = zip(names, aliases(names, alphabet), strict=True)
        self._aliases = {name: alias for name, alias in pairs if name != alias}
        self._names = {alias: name for name, alias in self._aliases.items()}
        try:
            self.schema = self.shown(schema)
        except _TooManyError:
            self._aliases, self._names = {}, {}

    def __bool__(self) -> bool:
        """Return whether any argument has an alias."""
        return bool(self._aliases)

    def listed(self) -> list[str]:
        """Return each alias as "ALIAS for NAME"."""
        return [f"{alias} for {name}" for name, alias in self._aliases.items()]

    def shown(self, schema: Any) -> Any:
        """Return a schema of these arguments with aliases."""
        self._num_put = 0
        return self._rewritten(schema, schema, True, ()) if self._aliases else schema

    def sent(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Rename the arguments of a call to their aliases."""
        return self._renamed(arguments, [self.schema], self._aliases) if self else arguments

    def meant(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Rename the arguments of a model's call to the schema's names."""
        return self._renamed(arguments, [self.schema], self._names) if self else arguments

    def in_json(self, arguments: Any, *, back: bool) -> Any:
        """Rename arguments given as JSON or an object: like `meant` if `back`, else like `sent`."""
        change = self.meant if back else self.sent
        if isinstance(arguments, dict):
            return change(arguments)
        try:
            read = read_json(arguments) if self and isinstance(arguments, str) else None
        except ValueError:
            return arguments
        if not isinstance(read, dict) or (changed := change(read)) == read:
            return arguments
        return json.dumps(changed, ensure_ascii=False)

    def _renamed(self, value: Any, schemas: list[Any], names: Mapping[str, str]) -> Any:
        """Rename the keys of a value where its schemas have that property."""
        here = [part for schema in schemas for part in level(schema, self.schema)]
        if isinstance(value, list):
            items = [s for part in here for s in _items(part)]
            return [self._renamed(each, items, names) for each in value]
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        for key, each in value.items():
            other = names.get(key, key)
            alias = other if names is self._aliases else key
            if other != key and not any(alias in _named(part) for part in here):
                other = alias = key
            found[other] = self._renamed(each, [s for p in here for s in _inner(p, alias)], names)
        return found if len(found) == len(value) else value  # otherwise a value would be lost

    def _rewritten(self, schema: Any, root: Schema, here: bool, open: tuple[str, ...]) -> Any:
        """Return a schema with aliases. With `here`, its own properties are renamed.

        A reference to the arguments as a whole is replaced with its definition, because the same
        definition may also describe a nested object. `open` are the references around it.
        """
        if isinstance(schema, list):
            return [self._rewritten(each, root, here, open) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        ref = schema.get("$ref")
        if here and not self._nested and isinstance(ref, str) and ref not in open:
            target = at(ref, root)
            if any(name in self._aliases for name in _properties_of(target, root)):
                self._num_put += 1
                if self._num_put > MOST_PUT:
                    raise _TooManyError
                inner = self._rewritten(target, root, here, (*open, ref))
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                rest = self._rewritten(rest, root, here, open)
                if rest.keys() & inner.keys():
                    return {**rest, "allOf": [inner, *_list(rest.get("allOf"))]}
                return inner | rest
        made: dict[str, Any] = {}
        for key, value in schema.items():
            inside = self._nested or (here and key in SAME)
            if key in MAPS and isinstance(value, Mapping):
                value = {n: self._rewritten(each, root, inside, open) for n, each in value.items()}
            if key in NAMED and here and isinstance(value, Mapping):
                value = {self._aliases.get(n, n): self._listed(each) for n, each in value.items()}
            elif key == "required" and here:
                value = self._listed(value)
            elif key == "$ref" and isinstance(value, str):
                value = self._moved(value)
            elif key not in (*MAPS, *DATA, "dependentRequired"):
                value = self._rewritten(value, root, inside, open)
            made[key] = value
        return made

    def _listed(self, names: Any) -> Any:
        if not isinstance(names, list):
            return names
        return [self._aliases.get(n, n) if isinstance(n, str) else n for n in names]

    def _moved(self, ref: str) -> str:
        """Return a reference with the aliases of the properties on its path."""
        steps = ref.split("/")
        aliased = {_step(name): alias for name, alias in self._aliases.items()}
        aliased |= {quote(step, safe="~"): alias for step, alias in aliased.items()}
        for n in range(2, len(steps)):
            if steps[n - 1] == "properties" and (self._nested or n == 2):
                steps[n] = aliased.get(steps[n], steps[n])
        return "/".join(steps)


def _step(name: str) -> str:
    """Escape a name as a step of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _properties_of(schema: Any, root: Schema) -> Iterator[str]:
    """Yield the names of a value's properties from the schema and those it refers to."""
    for part in level(schema, root):
        yield from _named(part)


def _named(schema: Schema) -> Iterator[str]:
    """Yield the names of properties that occur in a schema itself."""
    found = [schema[key] for key in NAMED if isinstance(schema.get(key), Mapping)]
    lists = [schema.get("required"), *_values(schema.get("dependentRequired"))]
    for names in (*found, *map(_list, lists)):
        yield from (n for n in names if isinstance(n, str))


def _all(schema: Schema) -> Iterator[Schema]:
    """Yield a schema and all schemas nested in it."""
    rest: list[Any] = [schema]
    while rest:
        found = rest.pop()
        if isinstance(found, list):
            rest += reversed(found)
        elif isinstance(found, Mapping):
            yield found
            inner = [(k, v) for k, v in found.items() if k not in DATA]
            rest += reversed([_values(v) if k in MAPS else v for k, v in inner])


def _items(schema: Schema) -> Iterator[Any]:
    """Yield the schemas that describe items of a list."""
    for key in ("items", "prefixItems", "additionalItems", "contains"):
        found = schema.get(key)
        yield from found if isinstance(found, list) else [found]


def _inner(schema: Schema, name: str) -> Iterator[Any]:
    """Yield the schemas that describe the value of a property."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        yield properties[name]
    else:
        yield schema.get("additionalProperties")
        yield from _values(schema.get("patternProperties"))


def _values(value: Any) -> list[Any]:
    return [*value.values()] if isinstance(value, Mapping) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
