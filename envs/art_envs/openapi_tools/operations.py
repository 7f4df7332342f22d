"""Conversion of operations into tools. Errors name their place in the document.

get /pets/{petId}  operationId: getPet   ->   getPet(petId)
post /pets         requestBody: Pet      ->   createPet(body)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from art_cli import Tool, UsageError, aliases
from art_envs.openapi_tools.bodies import body_of, is_json
from art_envs.openapi_tools.document import Document
from art_envs.openapi_tools.parameters import STYLES, Parameter
from art_envs.openapi_tools.shapes import AnyOperation, AnyParameter, PathItem
from art_envs.openapi_tools.swagger import NotWritten, operation
from art_envs.tasks.with_tools import did_you_mean

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
LONGEST_TEXT = 1000  # characters of a description
OURS = ("accept", "content-type", "authorization")  # headers that OpenAPI leaves to the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that can be called."""

    tool: Tool
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    schemes: tuple[tuple[str, ...], ...]  # security: one of these groups, with all of its schemes
    where: str  # in the document
    server: str | None  # the operation's own, instead of the document's


@dataclass(frozen=True, slots=True)
class _Found:
    """An operation and its place in the document."""

    id: str  # empty if it has none
    path: str
    method: str
    its: dict[str, Any]
    item: dict[str, Any]  # the path item

    @property
    def where(self) -> str:
        return f"paths.{self.path}.{self.method}"

    @property
    def named(self) -> str:
        """The id, or method and path if the id has no ASCII letter or digit."""
        return self.id if re.search("[a-zA-Z0-9]", self.id) else f"{self.method}{self.path}"


@lru_cache(maxsize=4)  # each episode requests them, and converting a large document takes time
def operations_of(document: Document, patterns: tuple[str, ...] | None) -> dict[str, Operation]:
    """Return the operations that `env.args.operations` names, by name. Raises UsageError."""
    known = _named(document)
    chosen = [name for name, found in known.items() if _is_chosen(name, found, patterns or ())]
    for pattern in patterns or ():
        plain = pattern.removeprefix("!")
        if not any(_matches(name, found, plain) for name, found in known.items()):
            shown = ", ".join(list(known)[:20]) + (", ..." if len(known) > 20 else "")
            raise UsageError(
                f"env.args.operations: {document.source} has no operation {plain!r}; it has "
                f"{shown or 'none'}.{did_you_mean(plain, known)}"
            )
    if not chosen:
        raise UsageError(
            f"{document.source}: no operation is offered: none of {len(known)} only reads (GET); "
            "name those that are in env.args.operations"
        )
    out: dict[str, Operation] = {}
    mistakes: list[str] = []
    for name in chosen:
        try:
            out[name] = _operation(document, name, known[name])
        except UsageError as e:
            mistakes.append(str(e))
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return out


def _named(document: Document) -> dict[str, _Found]:
    """Return all operations by unique tool names, in the document's order.

    Ids that become equal when they are cleaned and cut get the suffixes `_2`, `_3`, ...
    """
    found: list[_Found] = []
    for path, item in (document.root.get("paths") or {}).items():
        if item is None or path.startswith("x-"):
            continue
        item = document.shaped(PathItem, item, f"paths.{path}")
        for method in METHODS:
            if method in item:
                its = document.shaped(AnyOperation, item[method], f"paths.{path}.{method}")
                found.append(_Found(its.get("operationId", ""), path, method, its, item))
    return dict(zip(aliases([each.named for each in found]), found, strict=True))


def _matches(name: str, found: _Found, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(found.id, pattern)


def _is_chosen(name: str, found: _Found, patterns: tuple[str, ...]) -> bool:
    if any(p.startswith("!") and _matches(name, found, p[1:]) for p in patterns):
        return False
    wanted = [p for p in patterns if not p.startswith("!")]
    return any(_matches(name, found, p) for p in wanted) if wanted else found.method == "get"


def _operation(document: Document, name: str, chosen: _Found) -> Operation:
    path, method, where = chosen.path, chosen.method, chosen.where
    found, item = chosen.its, chosen.item
    if document.is_swagger:
        try:
            found = operation(
                document.root, found, _all_parameters(document, item, found, where).values()
            )
        except NotWritten as e:
            raise document.error(where, f"{e}; {_left_out(name)}") from None
        item = {}
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    defs: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for each in _parameters(document, item, found, where, name):
        argument = each["name"]
        while argument in schema["properties"]:
            argument = f"{argument}_{each['in']}"
        schema["properties"][argument] = _schema(document, each, where, defs)
        if each.get("required") or each["in"] == "path":
            schema["required"].append(argument)
        parameters.append(_parameter(document, each, argument, where, name))
    given = {p.name for p in parameters if p.place == "path"}
    if missing := [part for part in re.findall(r"{([^}]*)}", path) if part not in given]:
        raise document.error(where, f"its path has {missing[0]!r}, which is none of its parameters")
    if "requestBody" in found:
        argument = "body"
        while argument in schema["properties"]:
            argument = f"request_{argument}"
        body, parameter = body_of(document, found["requestBody"], where, argument, _left_out(name))
        schema["properties"][argument] = document.schema(body["schema"], where, defs)
        schema["required"] += [argument] * bool(body["required"])
        parameters.append(parameter)
    if defs:
        schema["$defs"] = defs
    texts = (found.get("summary"), found.get("description") or item.get("summary"))
    text = "\n".join(dict.fromkeys(t.strip() for t in texts if t)) or f"{method.upper()} {path}"
    tool = Tool(
        name=name,
        description=text[:LONGEST_TEXT],
        parameters=schema,
        writes=method not in ("get", "head", "options"),
    )
    security = found.get("security", document.root.get("security")) or []
    return Operation(
        tool=tool,
        method=method.upper(),
        path=path,
        parameters=tuple(parameters),
        schemes=tuple(tuple(group) for group in security),
        where=where,
        server=_own_server(document, item, found, where),
    )


def _own_server(
    document: Document, item: dict[str, Any], found: dict[str, Any], where: str
) -> str | None:
    """Return the URL that the operation or its path sets instead of the document's."""
    servers = found.get("servers") or item.get("servers")
    return document.server(servers, f"{where}.servers") if servers else None


def _parameters(
    document: Document, item: dict[str, Any], found: dict[str, Any], where: str, tool: str
) -> Iterator[dict[str, Any]]:
    """Yield the parameters of an operation that the model provides."""
    for (name, place), each in _all_parameters(document, item, found, where).items():
        if place == "header" and name.lower() in OURS:
            continue
        if place not in STYLES:
            what = f"its parameter {name!r} is in {place!r}; expected {', '.join(STYLES)}"
            raise document.error(where, f"{what}; {_left_out(tool)}")
        yield each


def _all_parameters(
    document: Document, item: dict[str, Any], found: dict[str, Any], where: str
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the parameters of an operation by name and place; its own replace the path's."""
    both: dict[tuple[str, str], dict[str, Any]] = {}
    for each in (*(item.get("parameters") or ()), *(found.get("parameters") or ())):
        each = document.resolved(each, f"{where}.parameters")
        if not isinstance(each, dict) or not {"name", "in"} <= each.keys():
            raise document.error(where, f"a parameter without name and in: {each!r:.100}")
        each = document.shaped(AnyParameter, each, f"{where}.parameters")
        if not isinstance(each.get("in"), str):
            raise document.error(where, f"its parameter {each['name']!r} has no text as in")
        both[each["name"], each["in"]] = each
    return both


def _parameter(
    document: Document, each: dict[str, Any], argument: str, where: str, tool: str
) -> Parameter:
    place = each["in"]
    style = each.get("style", STYLES[place][0])
    if style not in STYLES[place]:
        what = f"the style {style!r} of its parameter {each['name']!r} is none of a {place}"
        raise document.error(where, f"{what} ({', '.join(STYLES[place])}); {_left_out(tool)}")
    kinds = list(each.get("content") or ())
    return Parameter(
        argument=argument,
        name=each["name"],
        place=place,
        style=style,
        explode=bool(each.get("explode", style in ("form", "deepObject"))),
        is_json=any(is_json(kind) for kind in kinds[:1]),
    )


def _schema(
    document: Document, parameter: dict[str, Any], where: str, defs: dict[str, Any]
) -> dict[str, Any]:
    schema = parameter.get("schema")
    if schema is None:  # otherwise one media type, whose text is the value
        schema = next(iter((parameter.get("content") or {}).values()), {}).get("schema", {})
    schema = document.schema(schema, where, defs)
    texts = {k: parameter[k] for k in ("description", "example") if k in parameter}
    return texts | schema if isinstance(schema, dict) else texts


def _left_out(name: str) -> str:
    return f'leave it out with "!{name}" in env.args.operations'
