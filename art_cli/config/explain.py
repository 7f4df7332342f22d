"""Translation of pydantic's errors for users who write YAML.

Each mistake becomes one sentence that says what was expected and what was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from art_cli.config.foreign_keys import key_for
from art_cli.config.problem import KeyPath, dotted
from art_cli.config.schema import Experiment
from art_cli.config.sections.env import EnvConfig
from art_cli.config.unions import UNKNOWN, section_type, section_types, without_members
from art_cli.config.yaml import leaves, show
from art_cli.errors import UsageError

T = TypeVar("T")

_NUMBERS = {"int_type": "an integer", "float_type": "a number"}
_MAPPINGS = {"dict_type", "dataclass_type", "mapping_type", "model_type", "model_attributes_type"}
_LISTS = {"list_type", "tuple_type", "set_type", "frozen_set_type"}
_KINDS = {
    **_NUMBERS,
    "bool_type": "true or false",
    "string_type": "text",
    "finite_number": "a finite number",
    "none_required": "null",
    "path_type": "a path",
    **dict.fromkeys(_MAPPINGS, "a mapping"),
    **dict.fromkeys(_LISTS, "a list"),
}
_BOUNDS = {
    "ge": "at least",
    "gt": "more than",
    "le": "at most",
    "lt": "less than",
    "multiple_of": "a multiple of",
}
_PATTERNS = {
    r"^[A-Za-z0-9][A-Za-z0-9._-]*$": "a name of letters, digits, '.', '_' and '-', "
    "with a letter or a digit first",
    r"^[a-z0-9_-]+$": "a name of small letters, digits, '_' and '-'",
    r"^https?://[^\s/]+\S*$": "an address that begins with http:// or https://",
    r"^(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):[0-9]{1,5}$": "HOST:PORT, e.g. 10.0.0.5:8900",
}
_EXAMPLES = {
    "env": "env: {use: tic_tac_toe}",
    "env.use": "use: tic_tac_toe",
    "model": "model: {base: Qwen/Qwen2.5-0.5B-Instruct}",
    "model.base": "base: Qwen/Qwen2.5-0.5B-Instruct",
    "train": "train: {steps: 100}",
    "train.steps": "steps: 100",
}
_OF_ANY = {"model": "model: openai/o3"}  # for this key in any section
_EXAMPLE_VALUES = {int: "1", float: "0.5", bool: "true", str: "text"}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake at a path: in its key (which may be missing), or in its value."""

    path: KeyPath
    about: Literal["key", "value"]
    message: str
    others: tuple[KeyPath, ...] = ()  # alternatives to point at if `path` is not in a file
    is_secret: bool = False  # never show the line of this mistake


def read_into(cls: type[T], data: dict[str, Any], about: str) -> T:
    """Read `data` into the dataclass `cls`. Raises UsageError with one line per mistake."""
    try:
        return TypeAdapter(cls).validate_json(json.dumps(data, default=str), strict=True)
    except ValidationError as error:
        found = mistakes(error, cls, data, {})
        lines = [f"{about}: {dotted(each.path)}: {each.message}" for each in found]
        raise UsageError("\n".join(lines)) from None


def mistakes(
    error: ValidationError, cls: type, data: Any, secrets: Mapping[KeyPath, str]
) -> list[Mistake]:
    """Return one Mistake for each path in `data` that could not be read into `cls`.

    For values from the environment, `secrets` has the text to show instead.
    """
    found: dict[KeyPath, list[ErrorDetails]] = {}
    for path, detail in without_members(error, data):
        found.setdefault(path, []).append(detail)
    return [_mistake(path, details, cls, data, secrets) for path, details in found.items()]


def _mistake(
    path: KeyPath,
    details: list[ErrorDetails],
    cls: type,
    data: Any,
    secrets: Mapping[KeyPath, str],
) -> Mistake:
    detail, hint = details[0], _hint_at(cls, path, data)
    context = detail.get("ctx", {})
    if detail["type"] in UNKNOWN:
        above = _hint_at(cls, path[:-1], data)
        section = section_type(above, _at(data, path[:-1]))
        around = [section] if section else section_types(above)
        return Mistake(path, "key", f"unknown key. {nearest_key(str(path[-1]), *around)}")
    if detail["type"] == "missing" and isinstance(detail["input"], dict):
        return Mistake(path, "key", f"missing. Add for example: {_example(path, hint)}")
    secret = next((secrets[path[:n]] for n in range(len(path) + 1) if path[:n] in secrets), None)
    got = show(detail["input"] if secret is None else secret)
    phrases = dict.fromkeys(filter(None, (_expected(each, hint) for each in details)))
    if phrases:
        advice = _advice(detail) if secret is None else _advice_on_secret(detail, secret)
        message = f"expected {' or '.join(phrases)}, got {got}{advice}"
    elif bound := next((name for name in _BOUNDS if name in context), None):
        message = f"must be {_BOUNDS[bound]} {_plain(context[bound])}, got {got}"
    elif "error" in context:  # raised by the env's own check
        message = _redacted(str(context["error"]), data, secrets)
    else:
        message = f"{detail['msg']}, got {got}"
    return Mistake(path, "value", message)


def _expected(detail: ErrorDetails, hint: Any) -> str | None:
    """Return the text after "expected ...", for an error about the type of a value."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "plugin":
        return context["expected"]
    if kind in ("literal_error", "enum"):
        choices = context["expected"].replace(" or ", ", ")
        return f"one of {choices}" if ", " in choices else choices
    if kind == "string_pattern_mismatch":
        pattern = context["pattern"]
        return _PATTERNS.get(pattern, f"text that matches {pattern}")
    if kind == "string_too_long":
        return f"text of at most {context['max_length']} characters"
    if kind in _NUMBERS and (bounds := " and ".join(_bounds(hint))):
        return f"{_NUMBERS[kind]} of {bounds}"
    return _KINDS.get(kind)


def _bounds(hint: Any) -> Iterator[str]:
    """Yield the limits of a type such as `Annotated[int, Field(ge=0)]`, in words."""
    if get_origin(hint) is Annotated:
        for annotation in get_args(hint)[1:]:
            for limit in getattr(annotation, "metadata", [annotation]):
                for name, words in _BOUNDS.items():
                    if hasattr(limit, name):
                        yield f"{words} {_plain(getattr(limit, name))}"
    elif get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _bounds(member)


def _advice(detail: ErrorDetails) -> str:
    kind, value = detail["type"], detail["input"]
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off", "y", "n"):
        return " (which is text here): write true or false"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind in _NUMBERS and isinstance(value, str) and re.fullmatch(r"[-+]?[0-9]+", value):
        return "; remove the quotes"
    if kind in _MAPPINGS and value is None:
        return "; write its keys under it, or remove it"
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", detail.get("ctx", {})["expected"])
        near = get_close_matches(str(value).lower(), choices, n=1)
        return f". {_did_you_mean(near)}" if near else ""
    return ""


def _advice_on_secret(detail: ErrorDetails, text: str) -> str:
    if detail["type"] in (*_NUMBERS, "bool_type") and isinstance(detail["input"], str):
        return f"; environment variables are text, so write ${{oc.decode:{text}}}"
    return ""


def _redacted(message: str, data: Any, secrets: Mapping[KeyPath, str]) -> str:
    for path, text in secrets.items():
        value = data
        for key in path:
            value = value[key]
        for _, secret in leaves(value):
            if secret not in (None, "", [], {}):
                message = message.replace(str(secret), text)
    return message


def nearest_key(key: str, *sections: type) -> str:
    """Return advice for a key that none of the sections has."""
    known = [each.name for section in sections for each in fields(section)]
    foreign = key_for(key, known)
    if foreign in known:
        return _did_you_mean([foreign])
    if near := get_close_matches(key, known, n=1):
        return _did_you_mean(near)
    if EnvConfig in sections:
        return "The env's own settings go under env.args"
    if elsewhere := [path for path in _key_paths(Experiment) if path.endswith(f".{key}")]:
        return _did_you_mean(elsewhere)
    if foreign:
        return _did_you_mean([foreign])
    return f"Known here: {', '.join(known)}" if known else "Remove it"


def _did_you_mean(names: list[str]) -> str:
    return f"Did you mean {' or '.join(map(repr, names))}?"


def _key_paths(cls: type) -> Iterator[str]:
    for name, hint in get_type_hints(cls, include_extras=True).items():
        yield name
        for section in section_types(hint):
            yield from (f"{name}.{path}" for path in _key_paths(section))


def _at(data: Any, path: KeyPath) -> Any:
    """Return the mapping at a path of a document, or an empty one."""
    for key in path:
        data = cast(Any, data)[key]
    return data if isinstance(data, dict) else {}


def _hint_at(cls: type, path: KeyPath, data: Any) -> Any:
    """Return the type at a path of `cls`, with its limits; None if it is not known.

    `data` is the document. If several sections are possible, its keys decide.
    """
    hint: Any = cls
    for n, key in enumerate(path):
        if isinstance(key, int):
            item, *others = get_args(hint) or (None,)
            hint = item if others in ([], [...]) else None
        elif section := section_type(hint, _at(data, path[:n])):
            hint = get_type_hints(section, include_extras=True).get(key)
        else:
            of = get_args(hint)[0] if get_origin(hint) is Annotated else hint
            hint = get_args(of)[1] if get_origin(of) is dict else None
    return hint


def _example(path: KeyPath, hint: Any) -> str:
    value = _EXAMPLE_VALUES.get(hint if get_origin(hint) is not Annotated else get_args(hint)[0])
    own = _EXAMPLES.get(dotted(path)) or _OF_ANY.get(str(path[-1]))
    return own or f"{path[-1]}: {value or '...'}"


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)
