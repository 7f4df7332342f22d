"""The description of each config key: its meaning, values, default, and the keys it needs.

All of it is read from schema.py and sections/, where the text under a key is its description.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from itertools import pairwise
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from art_cli.config import schema
from art_cli.config.explain import nearest_key
from art_cli.config.marks import NotWith, OnlyWith
from art_cli.config.plugins import FORM
from art_cli.config.sections import train
from art_cli.config.sections.train import MIN_MICROBATCH_TOKENS
from art_cli.config.unions import section_types
from art_cli.errors import UsageError

WORDS = {
    "Count": "integer from 1",
    "CountOrZero": "integer from 0",
    "Positive": "number above 0",
    "NonNegative": "number from 0",
    "Name": "name: letters, digits and . _ -",
    "Share": "number above 0, to 1",
    "Url": "address: http:// or https://",
    "Address": "HOST:PORT",
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "None": "null",
    "Any": "anything",
    "ToolFormatName": "auto, or [the name of a format](models.md#tool-calls-and-thinking)",
}
REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}  # ${oc.env:NAME}, for any value
PLUGIN = f"[{FORM}](#code-of-your-own)"
LIMITS = {
    "ge": "from",
    "gt": "above",
    "le": "to",
    "lt": "below",
    "multiple_of": "multiple of",
    "min_length": "at least",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a section. The texts are Markdown."""

    name: str
    takes: str
    default: str
    meaning: str
    needs: list[str]  # conditions without which it has no effect
    sections: list[type]  # the dataclasses of its value, if it is a section

    @property
    def in_words(self) -> str:
        """Its meaning and the conditions for an effect."""
        return " ".join([self.meaning, *(f"{need}." for need in self.needs)])


def keys_of(section: type) -> list[Key]:
    """Return the keys of a section of the schema, in its order."""
    hints = get_type_hints(section, include_extras=True)
    texts = _texts(section)
    return [
        Key(
            name=f.name,
            takes=_kind(ast.parse(str(f.type), mode="eval").body),
            default=_default(f),
            meaning=texts[f.name],
            needs=list(_needs(hints[f.name])),
            sections=section_types(hints[f.name]),
        )
        for f in fields(section)
    ]


def key_at(path: str) -> Key:
    """Return the key at a path such as `train.steps`. Raises UsageError if it does not exist."""
    sections: list[type] = [schema.Experiment]
    found = None
    for done, name in enumerate(parts := path.split(".")):
        known = {key.name: key for section in sections for key in keys_of(section)}
        if name not in known:
            above = ".".join(parts[:done])
            where = f"under {above!r}" if above else "at the top"
            raise UsageError(f"there is no key {name!r} {where}. {nearest_key(name, *sections)}")
        found = known[name]
        sections = found.sections
    assert found
    return found


def json_schema(env: str | None, env_config: type | None) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a config, for editors.

    With the name of an env and its Config, `env.args` is checked too.
    """
    found = TypeAdapter(schema.Experiment).json_schema()
    definitions = found["$defs"]
    for section in (schema.Experiment, *_sections(schema.Experiment)):
        part = found if section is schema.Experiment else definitions[section.__name__]
        for key in keys_of(section):
            value = part["properties"][key.name]
            if not key.sections:
                value: dict[str, Any] = {"anyOf": [value, REFERENCE]}
                part["properties"][key.name] = value
            value["description"] = key.in_words
    found["required"].remove("name")  # if there is none, it is the file's name
    if env_config:
        args = TypeAdapter(env_config).json_schema(ref_template="#/$defs/env.args/$defs/{model}")
        definitions["env.args"] = args | {"additionalProperties": False}
        definitions["EnvConfig"]["properties"] |= {
            "use": {"const": env},
            "args": {"$ref": "#/$defs/env.args"},
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | found


def _sections(section: type) -> Iterator[type]:
    for key in keys_of(section):
        for inner in key.sections:
            yield inner
            yield from _sections(inner)


def about(section: type) -> str:
    """Return the docstring of a section."""
    return inspect.cleandoc(section.__doc__ or "")


def _needs(hint: Any) -> Iterator[str]:
    for mark in getattr(hint, "__metadata__", ()):
        if isinstance(mark, OnlyWith):
            yield f"Only with `{mark.key}` {' or '.join(mark.values)}"
        elif isinstance(mark, NotWith):
            yield f"Not with `{mark.key}`"


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        return f"`{_plain(field.default)}`" if field.default != "" else "none"
    if field.default_factory is MISSING:
        return "from the file's name" if field.name == "name" else "**needed**"
    made = field.default_factory()
    return "as in its section" if hasattr(made, "__dataclass_fields__") else f"`{_plain(made)}`"


def _plain(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _kind(node: ast.expr) -> str:
    """Describe a type for users."""
    if isinstance(node, ast.BinOp):
        left, right = _kind(node.left), _kind(node.right)
        return left if left.endswith(right) else f"{left} or {right}"
    if isinstance(node, ast.Constant):
        return WORDS[str(node.value)]
    if isinstance(node, ast.Name):
        if node.id in ("LossName", "AdvantageName", "CurriculumName"):
            return _kind(_assigned(node.id))
        return "a section" if node.id.endswith("Config") else WORDS[node.id]
    assert isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name), ast.dump(node)
    inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if node.value.id == "Literal":
        return ", ".join(f"`{ast.literal_eval(each)}`" for each in inside)
    if node.value.id == "Annotated":
        if any(ast.unparse(n).startswith("Plugin(") for n in inside):
            return PLUGIN
        ranges = [_range(n) for n in inside[1:] if ast.unparse(n).startswith("Field(")]
        return " ".join([_kind(inside[0]), *ranges])
    if node.value.id == "list":
        return f"list of: {_kind(inside[0])}"
    return "mapping"


def _range(limits: ast.expr) -> str:
    assert isinstance(limits, ast.Call)
    names = {"MIN_MICROBATCH_TOKENS": MIN_MICROBATCH_TOKENS, "2 ** 31": 2**31}
    given = {str(k.arg): ast.unparse(k.value) for k in limits.keywords}
    return ", ".join(f"{LIMITS[k]} {names.get(v, v)}" for k, v in given.items())


@cache
def _assigned(name: str) -> ast.expr:
    for node in ast.parse(inspect.getsource(train)).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise LookupError(name)


@cache
def _texts(section: type) -> dict[str, str]:
    """Return the text under each field, as one line."""
    found: dict[str, str] = {}
    for each in reversed(section.__mro__[:-1]):
        [definition] = ast.parse(inspect.getsource(each)).body
        assert isinstance(definition, ast.ClassDef)
        for key, text in pairwise(definition.body):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
                found[ast.unparse(key.target)] = " ".join(ast.literal_eval(text.value).split())
    return found
