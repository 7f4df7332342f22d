"""Operations become tools, or a mistake with its place in the document.

get /pets/{petId}  operationId: getPet   ->   getPet(petId)
post /pets         requestBody: Pet      ->   createPet(body)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from art_cli import Tool, UsageError
from art_envs.openapi_tools.document import Document
from art_envs.tasks.with_tools import did_you_mean

METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
NOT_OF_A_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
LONGEST_NAME = 64  # what OpenAI's protocol takes
LONGEST_TEXT = 1000  # characters of a description
OURS = ("accept", "content-type", "authorization")  # headers that OpenAPI leaves to the client
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Where an argument goes."""

    argument: str  # how the tool calls it
    name: str  # how the API does
    place: Literal["path", "query", "header", "body", "form"]
    explode: bool = True
    deep: bool = False  # an object in a query as a[b]=c


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that can be called."""

    tool: Tool
    method: str
    path: str
    parameters: tuple[Parameter, ...]
    schemes: tuple[tuple[str, ...], ...]  # of security: one of these groups, all of it
    where: str  # in the document


@lru_cache(maxsize=4)  # each episode asks for them, and those of a large document take a while
def operations_of(document: Document, patterns: tuple[str, ...] | None) -> dict[str, Operation]:
    """Return the operations that `env.args.operations` names, by name. Raises UsageError."""
    known: dict[str, tuple[str, str, str]] = {}
    for path, item in (document.root.get("paths") or {}).items():
        for method in METHODS:
            if not isinstance(found := document.resolved(item, f"paths.{path}").get(method), dict):
                continue
            where = f"paths.{path}.{method}"
            name = _name(str(found.get("operationId") or f"{method}{path}"))
            if name in known:
                other = known[name][2]
                raise document.error(where, f"its name {name!r} is that of {other}; rename one")
            known[name] = (path, method, where)
    chosen = [
        name for name, (_, method, _) in known.items() if _is_chosen(name, method, patterns or ())
    ]
    for pattern in patterns or ():
        plain = pattern.removeprefix("!")
        if not any(fnmatchcase(name, plain) for name in known):
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
            out[name] = _operation(document, name, *known[name])
        except UsageError as e:
            mistakes.append(str(e))
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return out


def _name(text: str) -> str:
    return NOT_OF_A_NAME.sub("_", text).strip("_")[:LONGEST_NAME]


def _is_chosen(name: str, method: str, patterns: tuple[str, ...]) -> bool:
    if any(p.startswith("!") and fnmatchcase(name, p[1:]) for p in patterns):
        return False
    wanted = [p for p in patterns if not p.startswith("!")]
    return any(fnmatchcase(name, p) for p in wanted) if wanted else method == "get"


def _operation(document: Document, name: str, path: str, method: str, where: str) -> Operation:
    item = document.resolved(document.root["paths"][path], where)
    found = item[method]
    schema: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
    defs: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for each in _parameters(document, item, found, where, name):
        argument = each["name"]
        if argument in schema["properties"]:
            argument = f"{argument}_{each['in']}"
        schema["properties"][argument] = _schema(document, each, where, defs)
        if each.get("required") or each["in"] == "path":
            schema["required"].append(argument)
        parameters.append(
            Parameter(
                argument=argument,
                name=each["name"],
                place=each["in"],
                explode=each.get("explode", each.get("style", "form") in ("form", "deepObject")),
                deep=each.get("style") == "deepObject",
            )
        )
    given = {p.name for p in parameters if p.place == "path"}
    if missing := [part for part in re.findall(r"{([^}]*)}", path) if part not in given]:
        raise document.error(where, f"its path has {missing[0]!r}, which is none of its parameters")
    if "requestBody" in found:
        argument = "body" if "body" not in schema["properties"] else "request_body"
        body, place = _body(document, found["requestBody"], f"{where}.requestBody", name)
        schema["properties"][argument] = document.schema(body["schema"], where, defs)
        schema["required"] += [argument] * bool(body.get("required"))
        parameters.append(Parameter(argument=argument, name=argument, place=place))
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
    )


def _parameters(
    document: Document, item: dict[str, Any], found: dict[str, Any], where: str, tool: str
) -> Iterator[dict[str, Any]]:
    """Yield the parameters of an operation that a model gives; its own take the path's place."""
    both: dict[tuple[str, str], dict[str, Any]] = {}
    for each in (*(item.get("parameters") or ()), *(found.get("parameters") or ())):
        each = document.resolved(each, f"{where}.parameters")
        if not isinstance(each, dict) or not {"name", "in"} <= each.keys():
            raise document.error(where, f"a parameter without name and in: {each!r:.100}")
        both[each["name"], each["in"]] = each
    for (name, place), each in both.items():
        if place == "header" and name.lower() in OURS:
            continue
        if place not in ("path", "query", "header"):
            if not each.get("required"):
                continue
            what = f"it needs {name!r} in a {place}, which cannot be given"
            raise document.error(where, f"{what}; {_left_out(tool)}")
        yield each


def _schema(
    document: Document, parameter: dict[str, Any], where: str, defs: dict[str, Any]
) -> dict[str, Any]:
    schema = parameter.get("schema")
    if schema is None:  # or else one media type, whose text is the value
        schema = next(iter((parameter.get("content") or {}).values()), {}).get("schema", {})
    schema = document.schema(schema, where, defs)
    texts = {k: parameter[k] for k in ("description", "example") if k in parameter}
    return texts | schema if isinstance(schema, dict) else texts


def _body(
    document: Document, body: Any, where: str, name: str
) -> tuple[dict[str, Any], Literal["body", "form"]]:
    """Return (its schema and whether it is required, how it is sent). Raises UsageError."""
    body = document.resolved(body, where)
    content = body.get("content") or {}
    for kind, media in content.items():
        plain = kind.partition(";")[0].strip().lower()
        place = "form" if plain == FORM else "body"
        if plain in (FORM, "application/json", "*/*") or plain.endswith("+json"):
            return {"schema": media.get("schema", {}), "required": body.get("required")}, place
    what = f"it takes {', '.join(content) or 'nothing'}, and only JSON and forms can be sent"
    raise document.error(where, f"{what}; {_left_out(name)}")


def _left_out(name: str) -> str:
    return f'leave it out with "!{name}" in env.args.operations'
