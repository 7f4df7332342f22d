"""The choice of a union's member that a value was meant for, by its keys and mistakes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from art_cli.config.problem import KeyPath

UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
OF_KEYS = ("missing", *UNKNOWN)


def section_types(hint: Any) -> list[type]:
    """Return the dataclasses into which a value of type `hint` may be read from a mapping."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return [member for member in members if isinstance(member, type) and is_dataclass(member)]


def section_type(hint: Any, written: Collection[Any] = ()) -> type | None:
    """Return the only one of `section_types`, or the one with most of the `written` keys.

    Returns None if that does not decide.
    """
    classes = section_types(hint)
    if len(classes) > 1:
        known = [len({each.name for each in fields(c)} & {*written}) for c in classes]
        classes = [c for c, num in zip(classes, known, strict=True) if num == max(known)]
    return classes[0] if len(classes) == 1 else None


def without_members(error: ValidationError, data: Any) -> Iterator[tuple[KeyPath, ErrorDetails]]:
    """Yield errors with their paths in the data.

    pydantic reports a value that fits no member of a union once per member, and adds the member to
    the path. The best explanation is from the members that fit most of the value: those with the
    deepest mistakes, and of these the ones with the fewest missing or unknown keys.
    """
    unions: dict[KeyPath, dict[Any, list[tuple[KeyPath, ErrorDetails]]]] = {}
    for detail in error.errors():
        path, union = _path_in(data, detail)
        if union is None:
            yield path, detail
        else:
            members = unions.setdefault(union, {})
            members.setdefault(detail["loc"][len(union)], []).append((path, detail))
    for members in unions.values():
        longest = max(len(path) for found in members.values() for path, _ in found)
        deepest = [
            [each for each in found if len(each[0]) == longest] for found in members.values()
        ]
        strange = [sum(d["type"] in OF_KEYS for _, d in found) for found in deepest]
        least = min(num for num, found in zip(strange, deepest, strict=True) if found)
        for num, found in zip(strange, deepest, strict=True):
            yield from found if num == least else ()


def _path_in(data: Any, detail: ErrorDetails) -> tuple[KeyPath, KeyPath | None]:
    """Return the part of pydantic's path that is in the data, and the path of the first union."""
    path: KeyPath = ()
    union: KeyPath | None = None
    for part in detail["loc"]:
        if (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            path, data = (*path, part), cast(Any, data)[part]
        elif detail["type"] == "missing" and isinstance(data, dict) and part == detail["loc"][-1]:
            path = (*path, part)
        elif union is None and isinstance(part, str):
            union = path
    return path, union
