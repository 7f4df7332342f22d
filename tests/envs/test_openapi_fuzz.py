"""Random parameters and documents: what reaches a real server is what the policy gave."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from fuzz import any_json, fuzz
from hypothesis import given
from hypothesis import strategies as st

from art_cli import InvalidCallError, UsageError
from art_cli.chat.tool_formats.names import PYTHON, ToolNames
from art_envs.openapi_tools.api import Api
from art_envs.openapi_tools.document import Document
from art_envs.openapi_tools.operations import operations_of
from art_envs.openapi_tools.settings import OpenApiSettings

STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
SIGNS = "ab1 .,;=&|/?#%+é列{}[]:@!$~-_'\"\\<>"
TEXTS = st.text(SIGNS, max_size=4)
KEYS = st.text("abé%./[]$ ", min_size=1, max_size=3)
LISTS = st.lists(TEXTS, min_size=1, max_size=3)
VALUES = TEXTS | LISTS | st.dictionaries(KEYS, TEXTS, min_size=1, max_size=3)


@st.composite
def parameters(draw: Any) -> dict[str, Any]:
    place = draw(st.sampled_from([*STYLES]))
    names = {"path": "p", "header": "X-P", "cookie": "p"}
    name = names.get(place) or draw(st.sampled_from(["p", "ids[]", "$top", "a b", "é", "p.q"]))
    return {
        "name": name,
        "in": place,
        "style": draw(st.sampled_from(STYLES[place])),
        "explode": draw(st.booleans()),
    }


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, list[Any]]]:
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers.items())))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.daemon_threads = True
    threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}", asked
    found.shutdown()
    found.server_close()


def cells(value: Any, between: str, text: str, *, explode: bool, decode: Any) -> Any:
    """Return a value that was written as joined texts."""
    parts = text.split(between)
    if isinstance(value, list):
        return [decode(part) for part in parts]
    if not isinstance(value, dict):
        return decode(text)
    if explode:
        return {decode(k): decode(v) for k, _, v in (part.partition("=") for part in parts)}
    return {decode(k): decode(v) for k, v in zip(parts[::2], parts[1::2], strict=True)}


def heard(parameter: dict[str, Any], value: Any, path: str, headers: dict[str, str]) -> Any:
    """Read a value from a request as OpenAPI 3.1.1 says in 4.8.12.6, given what kind it is."""
    name, style, explode = parameter["name"], parameter["style"], parameter["explode"]
    where, _, query = path.partition("?")
    if parameter["in"] == "path":
        text = where.removeprefix("/v1/x/").removesuffix("/y")
        if style == "simple":
            return cells(value, ",", text, explode=explode, decode=unquote)
        if style == "label":
            between = "." if explode and not isinstance(value, str) else ","
            return cells(value, between, text.removeprefix("."), explode=explode, decode=unquote)
        if isinstance(value, list) and explode:
            return [unquote(part.removeprefix("p=")) for part in text.removeprefix(";").split(";")]
        if isinstance(value, dict) and explode:
            pairs = (part.partition("=") for part in text.removeprefix(";").split(";"))
            return {unquote(k): unquote(v) for k, _, v in pairs}
        return cells(value, ",", text.removeprefix(";p="), explode=False, decode=unquote)
    if parameter["in"] == "header":
        return cells(value, ",", headers["X-P"], explode=explode, decode=str)
    text, between = (headers["Cookie"], "; ") if parameter["in"] == "cookie" else (query, "&")
    raw = [(unquote(k), v) for k, _, v in (part.partition("=") for part in text.split(between))]
    pairs = [(k, unquote(v)) for k, v in raw]
    if isinstance(value, str):
        return dict(pairs)[name]
    if style == "deepObject" and isinstance(value, dict):
        return {k.removeprefix(f"{name}[").removesuffix("]"): v for k, v in pairs}
    if explode or style == "deepObject":
        return [v for _, v in pairs] if isinstance(value, list) else dict(pairs)
    if parameter["in"] == "query" and style == "form":  # a comma that is encoded is an item's own
        return cells(value, ",", dict(raw)[name], explode=False, decode=unquote)
    sign = {"spaceDelimited": " ", "pipeDelimited": "|"}.get(style, ",")
    return cells(value, sign, dict(pairs)[name], explode=False, decode=str)


def api_of(document: dict[str, Any], auth: dict[str, str | None]) -> Api:
    least: dict[str, Any] = {"data": "x", "input": "q", "target": "a", "grade": "exact"}
    cfg = OpenApiSettings(spec="x", auth=auth, **least)
    read = Document("x.yaml", document)
    return Api(cfg, read, operations_of.__wrapped__(read, ("it",)))


@fuzz(400)
@given(parameters(), VALUES, st.integers(0, 2))
def test_what_the_server_hears_is_what_was_given(
    server: tuple[str, list[Any]], parameter: dict[str, Any], value: Any, own: int
) -> None:
    url, asked = server
    here, there = [{"url": f"{url}/v1"}], [{"url": "http://127.0.0.1:9/elsewhere"}]
    path = "/x/{p}/y" if parameter["in"] == "path" else "/x"
    operation = {"operationId": "it", "parameters": [parameter], "security": [{"key": []}]}
    item: dict[str, Any] = {"get": operation}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "paths": {path: item},
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }
    holders = (operation, item, document)  # the first that names servers has the say
    for n, holder in enumerate(holders):
        if n >= own:
            holder["servers"] = here if n == own else there

    async def go() -> None:
        api = api_of(document, {"key": "ART_FUZZ_TOKEN"})
        try:
            await api.call("it", {parameter["name"]: value})
        finally:
            await api.close()

    asked.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ART_FUZZ_TOKEN", "abcdef0123456789")
        try:
            asyncio.run(go())
        except InvalidCallError:
            assert not asked  # refused: the model reads why
            return
    [(path, headers)] = asked
    assert headers["Authorization"] == "Bearer abcdef0123456789"
    assert heard(parameter, value, path, headers) == value


POST = {
    "operationId": "it",
    "summary": "Do it.",
    "parameters": [
        {"name": "p", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "ids[]", "in": "query", "schema": {"type": "array", "items": {}}},
        {"name": "q", "in": "query", "content": {"application/json": {"schema": {}}}},
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {"type": "object", "properties": {"a": {"format": "binary"}}},
                "encoding": {"a": {"style": "form", "explode": False}},
            }
        },
    },
    "security": [{"key": []}],
    "servers": [{"url": "https://{a}.test", "variables": {"a": {"default": "b"}}}],
}
THIRD = {
    "openapi": "3.1.0",
    "servers": [{"url": "http://a.test"}],
    "paths": {"/x/{p}": {"post": POST, "parameters": [{"$ref": "#/components/parameters/r"}]}},
    "components": {
        "parameters": {
            "r": {"name": "r", "in": "query", "schema": {"$ref": "#/components/schemas/S"}}
        },
        "schemas": {
            "S": {"type": "object", "properties": {"s": {"$ref": "#/components/schemas/S"}}}
        },
        "securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "k"}},
    },
}
SECOND = {
    "swagger": "2.0",
    "host": "a.test",
    "basePath": "/v1",
    "schemes": ["http"],
    "consumes": ["application/json"],
    "paths": {
        "/x/{p}": {
            "post": {
                "operationId": "it",
                "parameters": [
                    {"name": "p", "in": "path", "type": "string", "required": True},
                    {"name": "l", "in": "query", "type": "array", "items": {"type": "string"}},
                    {"name": "f", "in": "formData", "type": "array", "collectionFormat": "multi"},
                ],
                "security": [{"login": []}],
                "schemes": ["https"],
            }
        }
    },
    "securityDefinitions": {"login": {"type": "basic"}},
}


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the path to everything in a JSON value."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield (key,)
            yield from ((key, *rest) for rest in places(each))


@st.composite
def broken_documents(draw: Any) -> dict[str, Any]:
    document = copy.deepcopy(draw(st.sampled_from([SECOND, THIRD])))
    *way, last = draw(st.sampled_from(list(places(document))))
    holder = document
    for key in way:
        holder = holder[key]
    few = st.sampled_from(
        [None, 0, 1.5, True, "", "a", [], {}, [None], [1], {"a": 1}, {"$ref": "#"}]
    )
    odd = few | any_json
    if isinstance(holder, dict) and draw(st.booleans()):
        other = draw(st.sampled_from([*holder]))
        holder[other] = holder.pop(last)
    holder[last] = draw(odd)
    return document


@fuzz(400)
@given(broken_documents())
def test_a_broken_document_is_read_or_refused_with_its_place(document: dict[str, Any]) -> None:
    async def go() -> None:
        api = api_of(document, {"key": None, "login": None})
        try:
            for tool in api.tools:
                ToolNames([tool.schema()], PYTHON).shown()
            api._request(api._operations["it"], {"p": "a", "body": {"f": ["b"]}})
        finally:
            await api.close()

    try:
        asyncio.run(go())
    except InvalidCallError:
        pass  # it needs other arguments
    except UsageError as e:
        assert str(e).startswith(("x.yaml: ", "env.args."))
